// Package bearer gets the tokens that a login at Kafka shows in place of a password
// (OAUTHBEARER, RFC 7628).
//
// [ClientCredentials] asks a token endpoint. [Reuse] keeps a [Source] from being asked for
// every connection, and bridges its outages for as long as the last token is valid. [MSK] signs a
// login at Amazon MSK, and is all that knows the AWS SDK:
// https://docs.aws.amazon.com/msk/latest/developerguide/iam-access-control.html.
//
// No error has a token, a secret or the body of an answer in it.
package bearer

// Package bearer gets the tokens that a login shows in place of a password: at Kafka
// (OAUTHBEARER, RFC 7628) or at Postgres.
//
// [ClientCredentials] asks a token endpoint. [Command] runs a program that prints a token. [MSK] and
// [RDS] sign a login at Amazon MSK, and at RDS or Aurora:
// https://docs.aws.amazon.com/msk/latest/developerguide/iam-access-control.html,
// https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html. A [Memory] keeps
// a [Source] from being asked for every connection, and bridges its outages for as long as the last
// token is valid.
//
// No error has a token, a secret or the body of an answer in it.
package bearer

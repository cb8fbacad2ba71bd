package sqs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// The error classes of package sink with texts for SQS and SNS.
var (
	errAccess  = sink.NewError(sink.ErrAccess, "no access to AWS", accessAdvice)
	errMissing = sink.NewError(sink.ErrMissing, "queue or topic does not exist", missingAdvice)
)

const (
	reachAdvice   = "Check sink.sqs.region and the endpoints, and that they can be reached from here."
	missingAdvice = "Create the queue or topic, or check the region and the account in its URL or ARN."
	accessAdvice  = "Check the credentials: environment, shared files, web identity, or the role of the container or instance. The role needs\n" +
		"sqs:SendMessage and sqs:GetQueueAttributes on queues, sqs:GetQueueUrl on queues that are given by name or ARN, sns:Publish and\n" +
		"sns:GetTopicAttributes on topics, and kms:GenerateDataKey and kms:Decrypt on the keys of encrypted ones."
)

// A class says what an error code means for a message or a request.
type class uint8

const (
	retriable       class = iota // send it again after a back-off
	throttled                    // as retriable, with fewer requests at the same time
	missing                      // the queue or topic does not exist
	unauthenticated              // the credentials are not valid: retried after the first contact
	denied                       // a privilege is missing: retried, and CheckDestinations fails
	invalid                      // the service rejects the message; in a batch, find it
)

// classTable is the only place that decides what an error code means. Codes that both services have, in the forms of
// their protocols, are one row. Any other code is retriable: a record is rejected only if the code says so.
func classTable() [invalid + 1][]string {
	return [...][]string{
		retriable: {
			"InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "ServiceUnavailableException",
			"RequestTimeout", "RequestTimeoutException", "QueueDeletedRecently", "ConcurrentAccess",
			// The clock differs from the service's. The library corrects that for the next request.
			"RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture",
		},
		throttled: {
			"RequestThrottled", "RequestThrottledException", "Throttling", "ThrottlingException", "ThrottledException", "Throttled",
			"TooManyRequestsException", "RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown", "OverLimit",
			"PriorRequestNotComplete", "KmsThrottled", "KMSThrottling", "KMSThrottlingException",
		},
		missing: {
			"QueueDoesNotExist", "NonExistentQueue", "NotFound", "NotFoundException", "ResourceNotFound", "ResourceNotFoundException",
		},
		unauthenticated: {
			"InvalidClientTokenId", "UnrecognizedClientException", "InvalidAccessKeyId", "AuthFailure", "ExpiredToken", "ExpiredTokenException",
			"SignatureDoesNotMatch", "InvalidSignatureException", "IncompleteSignature", "MissingAuthenticationToken",
			"MissingAuthenticationTokenException", "InvalidSecurity", "InvalidSecurityException", "OptInRequired", "NotSignedUp",
		},
		denied: {
			"AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException", "UnauthorizedOperation", "NotAuthorized",
			"KmsAccessDenied", "KMSAccessDenied", "KMSAccessDeniedException", "KmsDisabled", "KMSDisabled", "KMSDisabledException",
			"KmsInvalidState", "KMSInvalidState", "KMSInvalidStateException", "KmsInvalidKeyUsage", "KmsNotFound", "KMSNotFound",
			"KMSNotFoundException", "KmsOptInRequired", "KMSOptInRequired", "InvalidAddress",
		},
		invalid: {
			"InvalidMessageContents", "InvalidParameterValue", "InvalidParameterValueException", "ParameterValueInvalid", "InvalidParameter",
			"InvalidParameterException", "InvalidParameterCombination", "MissingParameter", "ValidationError", "ValidationException",
			"BatchRequestTooLong", "BatchRequestTooLongException", "MessageTooLong", "UnsupportedOperation",
		},
	}
}

// classes has the rows of classTable by code.
var classes = func() map[string]class { //nolint:gochecknoglobals // a table that never changes
	byCode := make(map[string]class)
	for c, codes := range classTable() {
		for _, code := range codes {
			byCode[code] = class(c)
		}
	}
	return byCode
}()

// classify returns the class of an error code, in any of the forms in which the services write it.
func classify(code string) class {
	code = code[strings.LastIndexAny(code, "#.")+1:] // AWS.SimpleQueueService.NonExistentQueue, com.amazonaws.sqs#QueueDoesNotExist
	return classes[code]
}

// A codeError is an error code of a service. It does not have the service's text, which may quote a message.
type codeError struct {
	code     string
	status   int  // HTTP status of the response; 0 for an entry of a batch
	tooLarge bool // the message or the batch is too large
}

// Error returns the code.
func (e *codeError) Error() string {
	if e.status > 0 {
		return fmt.Sprintf("%s (HTTP status %d)", e.code, e.status)
	}
	return e.code
}

// class returns the class of the code. A response that is not of the service, such as that of a proxy, has none.
func (e *codeError) class() class {
	if _, known := classes[e.code[strings.LastIndexAny(e.code, "#.")+1:]]; !known && e.status == http.StatusTooManyRequests {
		return throttled
	}
	return classify(e.code)
}

// errNoCredentials: the chain of credentials has none, or they could not be refreshed.
var errNoCredentials = errors.New("no credentials")

// responseError returns the error of a request without the service's text. It is a *codeError if the service has
// responded, wraps errNoCredentials if the request could not be signed, and otherwise lane.ErrConnection.
func responseError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*credentialsError](err); ok {
		return e
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		status := 0
		if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
			status = resp.HTTPStatusCode()
		}
		return &codeError{code: e.ErrorCode(), status: status, tooLarge: isTooLarge(e.ErrorCode(), e.ErrorMessage())}
	}
	if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && resp.HTTPStatusCode() >= 300 {
		return &codeError{code: http.StatusText(resp.HTTPStatusCode()), status: resp.HTTPStatusCode()}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", lane.ErrConnection, context.Cause(ctx))
	}
	if reason := sink.TLSReason(err, "service"); reason != "" {
		return fmt.Errorf("%w: %w: %s: %w", lane.ErrConnection, errAccess, reason, err)
	}
	return fmt.Errorf("%w: %w", lane.ErrConnection, err)
}

// A credentialsError says that the chain of credentials has returned an error.
type credentialsError struct {
	err   error
	final bool // retrying does not help
}

func (e *credentialsError) Error() string { return errNoCredentials.Error() + ": " + e.err.Error() }

func (e *credentialsError) Unwrap() []error { return []error{errNoCredentials, e.err} }

// A provider marks the errors of the credentials of a Config, so that they are not taken for those of SQS or SNS.
type provider struct{ aws.CredentialsProvider }

// Retrieve returns the credentials or a *credentialsError.
func (p provider) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := p.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		return c, &credentialsError{err: err, final: ctx.Err() == nil && credentialsFinal(err)}
	}
	return c, nil
}

// credentialsFinal reports whether credentials are missing or rejected, as opposed to a service that issues them and
// cannot be reached. An instance metadata service that does not respond counts as missing: most machines have none.
func credentialsFinal(err error) bool {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		switch classify(e.ErrorCode()) {
		case throttled:
			return false
		case retriable:
			return e.ErrorFault() == smithy.FaultClient
		case missing, unauthenticated, denied, invalid:
			return true
		}
	}
	if e, ok := errors.AsType[*smithy.OperationError](err); ok && e.Service() == "ec2imds" {
		return true
	}
	_, unsent := errors.AsType[*smithyhttp.RequestSendError](err)
	return !unsent
}

package bearer

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
)

// MSK signs a login with IAM credentials at the Amazon MSK clusters of region, good for 15 minutes:
// the listener takes the signed request as a token. The credentials are those that the SDK finds
// where all of Amazon's tools look: the environment, shared files, the web
// identity of a service account, the metadata of container and instance. It asks for them each
// time, over the network where they come from there; with ctx that ends.
func MSK(ctx context.Context, region string) (token string, expires time.Time, err error) {
	token, ms, err := signer.GenerateAuthToken(ctx, region)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a login with IAM credentials: %w", err)
	}
	return token, time.UnixMilli(ms), nil
}

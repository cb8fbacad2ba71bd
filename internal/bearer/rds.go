package bearer

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/rds/auth"
)

// rdsLifetime is how long a server accepts a token for a new login:
// https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html.
const rdsLifetime = 15 * time.Minute

// RDS signs a login of user at the RDS or Aurora server at address, host:port, with the credentials that [MSK] uses. The
// server accepts the signed request as a password. Only the search for credentials may need the network.
func RDS(ctx context.Context, region, address, user string) (token string, expires time.Time, err error) {
	aws, err := config.LoadDefaultConfig(ctx, config.WithRegion(region))
	if err == nil {
		expires = time.Now().Add(rdsLifetime)
		token, err = auth.BuildAuthToken(ctx, address, region, user, aws.Credentials)
	}
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign a login with IAM credentials: %w", err)
	}
	return token, expires, nil
}

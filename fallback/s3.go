package fallback

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"golang.org/x/sys/unix"
)

const (
	connectTimeout = 5 * time.Second
	// attempts and mostPause bound how long the SDK tries. A drain tries a block again by itself; but a large one should not
	// begin anew because of a single 503.
	attempts  = 3
	mostPause = time.Second
	// reread is how old keys that were read from a credentials file may be. They are rotated by changing the file, and a drain
	// may have two minutes.
	reread = 10 * time.Second
)

// slowDown is the status by which others than Amazon say "slow down", each in its own word. The SDK knows some of the words alone.
var slowDown = retry.RetryableHTTPStatusCode{Codes: map[int]struct{}{http.StatusTooManyRequests: {}}}

// OpenBucket makes a client. It reads what the SDK's default chain reads on this machine, and asks nobody.
func OpenBucket(ctx context.Context, s S3, dial Dialer) (*Bucket, error) {
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	answers := newAnswers()
	options := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { tune(t, dial, answers.work) })),
		awsconfig.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff = attempts, mostPause
				o.RateLimiter = ratelimit.None // no quota: attempts and the drain's deadline are the bounds
				o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(answers.hangs), slowDown}, o.Retryables...)
			})
		}),
		awsconfig.WithLogger(logging.Nop{}), // what matters comes as errors
	}
	if s.Region != "" {
		options = append(options, awsconfig.WithRegion(s.Region))
	}
	switch {
	case s.CredentialsFile != "":
		info, err := os.Stat(s.CredentialsFile)
		if err != nil {
			return nil, fmt.Errorf("fallback.s3.credentials_file: %w", err)
		}
		if info.Mode().Perm()&0o077 != 0 {
			return nil, fmt.Errorf("fallback.s3.credentials_file %s: readable by others (mode %04o): chmod 600 it", s.CredentialsFile, info.Mode().Perm())
		}
		options = append(options, awsconfig.WithCredentialsProvider(keysIn(s.CredentialsFile, s.Profile)))
	case s.Profile != "":
		options = append(options, awsconfig.WithSharedConfigProfile(s.Profile))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("fallback.s3: %w", err)
	}
	switch {
	case cfg.Region == "" && s.Endpoint == "":
		return nil, errors.New("fallback.s3.region: the bucket's region is not known: set it, or AWS_REGION")
	case cfg.Region == "":
		cfg.Region = "us-east-1" // servers of one's own have none, and the signature needs a word
	}
	cfg.Credentials = keys{cfg.Credentials}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		answers.client, o.HTTPClient = o.HTTPClient, answers
		o.UsePathStyle = s.PathStyle
		if s.Endpoint != "" {
			o.BaseEndpoint = &s.Endpoint
		}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired // ours are computed already
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired // ranges have none
	})
	return &Bucket{client: client, bucket: s.Bucket, prefix: s.Prefix, parts: make(chan []byte, mostStreams)}, nil
}

// keys provides what requests are signed with. Its error, that there are no keys, is told apart from what a bucket answers.
type keys struct{ from aws.CredentialsProvider }

func (k keys) Retrieve(ctx context.Context) (aws.Credentials, error) {
	got, err := k.from.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		return got, &keysError{err}
	}
	return got, err
}

type keysError struct{ error }

func (e *keysError) Unwrap() error { return e.error }

func (e *keysError) Error() string {
	return fmt.Sprintf("no keys to sign requests with (%s): see fallback.s3.credentials_file and .profile, or give this machine a role",
		strings.TrimPrefix(e.error.Error(), "failed to refresh cached credentials, "))
}

// keysIn reads a profile of a credentials file when its keys are needed.
func keysIn(file, profile string) aws.CredentialsProvider {
	profile = cmp.Or(profile, awsconfig.DefaultSharedConfigProfile)
	read := func(ctx context.Context) (aws.Credentials, error) {
		shared, err := awsconfig.LoadSharedConfigProfile(ctx, profile, func(o *awsconfig.LoadSharedConfigOptions) {
			o.CredentialsFiles, o.ConfigFiles, o.Logger = []string{file}, []string{}, logging.Nop{}
		})
		if err != nil {
			return aws.Credentials{}, fmt.Errorf("profile %s of %s: %w", profile, file, err)
		}
		found := shared.Credentials
		if !found.HasKeys() {
			return aws.Credentials{}, fmt.Errorf("profile %s of %s has no aws_access_key_id and aws_secret_access_key", profile, file)
		}
		found.CanExpire, found.Expires = true, time.Now().Add(reread)
		return found, nil
	}
	return aws.NewCredentialsCache(aws.CredentialsProviderFunc(read))
}

// tune gives connections our own timeouts: one that carries a byte now and then is not cut, and none hangs.
func tune(t *http.Transport, dial Dialer, work func() time.Duration) {
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		keepLittle(conn)
		return &patientConn{conn, work}, nil
	}
	t.TLSHandshakeTimeout = connectTimeout
	t.IdleConnTimeout = silence / 2
	t.MaxIdleConns, t.MaxIdleConnsPerHost = mostStreams+mostPuts, mostStreams+mostPuts
	// With HTTP/2 all uploads would share one connection: its windows, which are small beside a link's, and its end.
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.TLSClientConfig.NextProtos = nil // the SDK's already offers HTTP/2
	t.DisableCompression = true
}

// mostUnsent is how much of a request the kernel keeps that it has not sent yet. It takes up to 4 MiB by itself: of a bucket that reads
// slowly we would notice nothing for as long as it takes that, and cut the connection though bytes pass.
const mostUnsent = 128 << 10

func keepLittle(conn net.Conn) {
	raw, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if kernel, err := raw.SyscallConn(); err == nil {
		_ = kernel.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, mostUnsent)
		})
	}
}

// patientConn is cut when no byte passes for so long, in either direction.
type patientConn struct {
	net.Conn
	work func() time.Duration
}

func (c *patientConn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.work())); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *patientConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.work())); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// code is the word that a server gave for an error, "" when it gave none.
func code(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

// advice is what helps against what a bucket says by these words: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
var advice = map[string]string{
	"ExpiredToken":                       "its keys have ended: renew them in fallback.s3.credentials_file, or where else they come from; the SDK's own files are read when the agent starts",
	"InvalidToken":                       keysAdvice,
	"InvalidAccessKeyId":                 keysAdvice,
	"XAdminUserNotFound":                 keysAdvice, // versitygw, with 404
	"SignatureDoesNotMatch":              keysAdvice,
	"RequestTimeTooSkewed":               "this machine's clock is wrong: have it set (chrony, systemd-timesyncd)",
	"RequestExpired":                     "this machine's clock is wrong: have it set (chrony, systemd-timesyncd)",
	"AuthorizationHeaderMalformed":       regionAdvice,
	"IllegalLocationConstraintException": regionAdvice,
	"PermanentRedirect":                  regionAdvice,
	"InvalidObjectState":                 "it was moved to an archive: keep lifecycle rules from doing that",
	"QuotaExceeded":                      "raise the quota, or remove what is old",
}

// unfit are words that mean one key: it is too long, or, where objects are kept as files, it needs a directory where an object is, or the
// other way round. They are those of AWS, MinIO and versitygw.
var unfit = []string{"KeyTooLongError", "XMinioInvalidObjectName", "XMinioObjectExistsAsDirectory", "ObjectParentIsFile", "ExistingObjectIsDirectory"}

const (
	keysAdvice   = "correct the keys (fallback.s3.credentials_file and .profile)"
	regionAdvice = "set fallback.s3.region to the bucket's"
)

// explain turns an SDK's error into one that says what the bucket said and what helps. Errors that callers branch on become
// fs.ErrNotExist and fs.ErrExist.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if none, ok := errors.AsType[*keysError](err); ok {
		return none
	}
	status := 0
	if resp, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = resp.HTTPStatusCode()
	}
	word := code(err)
	switch {
	case word == "NoSuchBucket":
		return errors.New("the bucket does not exist: create it, or correct fallback.s3.bucket")
	case word == noSuchUpload:
		return errors.New("the bucket does not know the upload any more: its rule, or somebody, has aborted it")
	case word == "NoSuchKey", word == wordless && bare(err):
		return fs.ErrNotExist
	case word == wordless:
		return errors.New("what answers there answers 404 as no bucket does: correct fallback.s3.endpoint, or see to the server behind it")
	case status == http.StatusPreconditionFailed, word == "ConditionalRequestConflict":
		return fs.ErrExist
	case slices.Contains(unfit, word):
		return unfitError(fmt.Sprintf("the bucket takes no such key (%s): remove what lies in its way there, or rename the file here", saying(err)))
	case advice[word] != "":
		return fmt.Errorf("the bucket answers %d (%s): %s", status, saying(err), advice[word])
	case status == http.StatusForbidden:
		return fmt.Errorf("forbidden (%s): the agent needs %s", saying(err), needs(err))
	case status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("the bucket answers %d (%s): have what stands before it take bodies of %d MiB (nginx: client_max_body_size)", status, saying(err), partBytes>>20)
	case status != 0:
		return fmt.Errorf("the bucket answers %d (%s)", status, saying(err))
	}
	if silent, ok := errors.AsType[*silentError](err); ok {
		return silent
	}
	if sent, ok := errors.AsType[*url.Error](err); ok { // less the SDK's account of who wraps whom
		return fmt.Errorf("no answer: %w%s", sent.Err, reachAdvice(err))
	}
	return err
}

// reachAdvice is what helps where the server that was asked for is not there, or is not believed to be that one; "" elsewhere.
func reachAdvice(err error) string {
	name, unnamed := errors.AsType[*net.DNSError](err)
	_, another := errors.AsType[x509.HostnameError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	switch {
	case unnamed && name.IsNotFound, another:
		return ": correct fallback.s3.endpoint or .region, or set fallback.s3.path_style, as most servers other than Amazon's want it"
	case unknown:
		return ": put its CA among this machine's, or name its file in AWS_CA_BUNDLE (/etc/lifeboat/environment)"
	}
	return ""
}

// wordless is the SDK's word for a 404 that says nothing in S3's way.
const wordless = "NotFound"

// bare reports whether an answer to a question had no body at all. A proxy's page is not the bucket's word: it would tell readers that
// there is no such content, while the bucket behind it is away.
func bare(err error) bool {
	asked, _ := errors.AsType[*smithy.OperationError](err)
	resp, _ := errors.AsType[*awshttp.ResponseError](err)
	return asked != nil && resp != nil && (asked.OperationName == "HeadObject" || asked.OperationName == "GetObject" && resp.Response.ContentLength == 0)
}

// needs names the permissions that the refused request needs.
func needs(err error) string {
	asked, _ := errors.AsType[*smithy.OperationError](err)
	switch {
	case strings.Contains(saying(err), "to perform: kms:"):
		return "kms:GenerateDataKey and kms:Decrypt on the key that the bucket encrypts with"
	case asked == nil:
		return "s3:PutObject, s3:GetObject and s3:AbortMultipartUpload on the objects, s3:ListBucket on the bucket"
	case asked.OperationName == "AbortMultipartUpload":
		return "s3:AbortMultipartUpload on the objects"
	case strings.HasPrefix(asked.OperationName, "Get"), strings.HasPrefix(asked.OperationName, "Head"):
		return "s3:GetObject on the objects and s3:ListBucket on the bucket, else it does not hear that there is none"
	}
	return "s3:PutObject on the objects"
}

var (
	strange = regexp.MustCompile(`[^\x20-\x7e]+`)
	// resource matches the object in AWS's "access denied". Its key differs each time while the fault is the same, so saying cuts it off.
	resource = regexp.MustCompile(`(arn:[a-z-]+:s3:::[^/ "]+/)[^" ]*`)
)

// saying is what a server said of an error, fit for one line.
func saying(err error) string {
	said := "no word"
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		said = strings.TrimSuffix(api.ErrorCode()+": "+api.ErrorMessage(), ": ")
	}
	said = resource.ReplaceAllString(said, "$1*")
	return strange.ReplaceAllString(said[:min(len(said), 300)], "?")
}

// tagOf is an ETag without its quotes.
func tagOf(etag string) string { return strings.Trim(etag, `"`) }

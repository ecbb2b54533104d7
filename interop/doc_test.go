// Package interop_test tries our side of other people's protocols against their programs: AWS's test double of its metadata
// service, a mock of logind on a real message bus, an S3 server over a directory. A fake that was written beside the code
// under test shares the code's errors.
//
// It runs the programs that are installed and skips the others, and runs only with LIFEBOAT_INTEROP=1.
package interop_test

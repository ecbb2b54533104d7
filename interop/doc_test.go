// Package interop_test tries our side of other people's protocols against other people's programs: the cloud's own test
// double of its metadata service, a mock of logind on a real message bus, and an S3 server over a directory. A fake that was
// written next to the code that it tests agrees with its errors.
//
// It runs what is installed and skips what is not, and only where LIFEBOAT_INTEROP=1 asks for it.
package interop_test

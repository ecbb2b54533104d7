package coordinator

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// coordination is the service that the other coordinators call.
type coordination struct {
	api.UnimplementedCoordinationServer
	ledger     *ledger
	succession *succession
	accounts   *accounts
}

func (s *coordination) GetPosition(ctx context.Context, _ *api.GetPositionRequest) (*api.Position, error) {
	return &api.Position{
		Applied: s.ledger.applied(), Version: s.succession.version, Now: timestamppb.Now(),
		HttpAddress: s.succession.cfg.pages(), Leaving: s.succession.unfit() != "", Stranger: s.disowns(ctx),
	}, nil
}

// disowns reports whether there is a leader and the asking coordinator is no member. A coordinator that did not run when it was removed learns
// it this way.
func (s *coordination) disowns(ctx context.Context) bool {
	asker, err := caller(ctx)
	if err != nil {
		return false
	}
	return s.ledger.led() && !among(s.ledger.servers(), raft.ServerID(asker.Name))
}

func (s *coordination) KeepManifest(stream grpc.ClientStreamingServer[api.ManifestPart, api.KeepManifestReply]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if err := checkManifestFile(first.File); err != nil {
		return err
	}
	err = s.accounts.files.take(first.File, func() ([]byte, error) {
		part, err := stream.Recv()
		return part.GetData(), err
	})
	if err != nil {
		return status.Errorf(codes.Unavailable, "keep manifest %s: %v", first.File, err)
	}
	return stream.SendAndClose(&api.KeepManifestReply{})
}

func (s *coordination) FetchManifest(r *api.FetchManifestRequest, stream grpc.ServerStreamingServer[api.ManifestPart]) error {
	if err := checkManifestFile(r.GetFile()); err != nil {
		return err
	}
	from, err := s.accounts.files.root.Open(r.File)
	if err != nil {
		return status.Errorf(codes.NotFound, "manifest %s is not here: %v", r.File, err)
	}
	defer from.Close()
	return sendFile(r.File, from, stream.Send)
}

// checkManifestFile refuses a name that is not like those that begin gives to files.
func checkManifestFile(name string) error {
	if !filepath.IsLocal(name) || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, partly) || !strings.HasSuffix(name, ".jsonl") || len(name) > registry.MaxText {
		return fault("%q is no name of a manifest", name)
	}
	return nil
}

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lifeboat/lifeboat/api"
)

// ListAudit says what audit.json says, a record a line and a message.
func (f *fleet) ListAudit(req *api.ListAuditRequest, s grpc.ServerStreamingServer[api.ListAuditReply]) error {
	data, err := os.ReadFile(filepath.Join(f.dir, "audit.json"))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		r := new(api.AuditRecord)
		if err := protojson.Unmarshal([]byte(line), r); err != nil {
			return err
		}
		if r.GetIndex() <= req.GetAfter() || req.GetNode() != "" && !slices.Contains(r.GetNodes(), req.GetNode()) {
			continue
		}
		if err := s.Send(&api.ListAuditReply{Records: []*api.AuditRecord{r}}); err != nil {
			return err
		}
	}
	return nil
}

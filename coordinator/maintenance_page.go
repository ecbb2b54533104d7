package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/lifeboat/lifeboat/api"
)

// The pages of maintenance are those of Mesos's master, so that programs written for it work here. They have the same paths and the same
// JSON, and answer 200 without a body if done, 400 if refused.

// postSchedule replaces the schedule. An empty one cancels it.
func (s *web) postSchedule(w http.ResponseWriter, r *http.Request) {
	var said api.ScheduleJSON
	if !readJSON(w, r, &said) {
		return
	}
	windows, err := said.Windows()
	if err != nil {
		refuseHTTP(w, http.StatusBadRequest, err.Error())
		return
	}
	ask := &api.ScheduleMaintenanceRequest{Windows: windows}
	s.asks(w, r, api.Operator_ScheduleMaintenance_FullMethodName, ask, func(ctx context.Context, o *operator) error {
		_, err := o.ScheduleMaintenance(ctx, ask)
		return err
	})
}

func (s *web) getSchedule(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, api.ScheduleToJSON(s.maintenance.shown()))
}

func (s *web) getMaintenance(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, api.MaintenanceToJSON(s.maintenance.shown()))
}

// changeMachines takes machines down, or up again.
func (s *web) changeMachines(up bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var said []api.MachineJSON
		if !readJSON(w, r, &said) {
			return
		}
		ask := &api.ChangeMachinesRequest{Machines: api.MachinesFromJSON(said), Up: up}
		s.asks(w, r, api.Operator_ChangeMachines_FullMethodName, ask, func(ctx context.Context, o *operator) error {
			_, err := o.ChangeMachines(ctx, ask)
			return err
		})
	}
}

// readJSON decodes a request's body, or answers where in it the fault is.
func readJSON(w http.ResponseWriter, r *http.Request, into any) bool {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxMessageBytes))
	if err != nil {
		refuseHTTP(w, http.StatusBadRequest, fmt.Sprintf("the body: %v", err))
		return false
	}
	if err := api.FromJSON(body, into); err != nil {
		refuseHTTP(w, http.StatusBadRequest, fmt.Sprintf("the body: %v", err))
		return false
	}
	return true
}

// asks handles a page's request like the operator's call of that method: the same certificates may make it, and it is audited.
func (s *web) asks(w http.ResponseWriter, r *http.Request, method string, req proto.Message, call func(context.Context, *operator) error) {
	ctx := peer.NewContext(r.Context(), &peer.Peer{Addr: textAddr(r.RemoteAddr), AuthInfo: credentials.TLSInfo{State: *r.TLS}})
	g := s.gate
	if err := s.access.authorise(ctx, method); err != nil {
		refuseHTTP(w, http.StatusForbidden, messageOf(g.denied(ctx, method, err)))
		return
	}
	ctx, asked := g.audited(ctx, method, req)
	err := g.auditor.settle(ctx, asked, call(ctx, &operator{fleet: s.fleet, closing: s.closing}))
	_, deposed := errors.AsType[overtaken](err)
	switch code := httpCode(err); {
	case err == nil:
		w.WriteHeader(http.StatusOK)
	case deposed:
		s.turnAway(w, r)
	case code < http.StatusInternalServerError:
		refuseHTTP(w, http.StatusBadRequest, messageOf(err))
	default:
		refuseHTTP(w, code, messageOf(err))
	}
}

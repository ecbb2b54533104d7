package coordinator

import (
	"context"
	"log/slog"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// mayCall lists the roles whose certificates may make a call. A call that is not listed is open to nobody.
func mayCall(method string) []certs.Role {
	switch method {
	case api.Membership_Register_FullMethodName,
		api.Membership_Heartbeat_FullMethodName,
		api.Membership_WorkerDecommission_FullMethodName,
		api.Membership_WithdrawDecommission_FullMethodName,
		api.Membership_ReportUnavailable_FullMethodName,
		api.Membership_ReportBlocks_FullMethodName,
		api.Membership_Goodbye_FullMethodName,
		api.Membership_Locate_FullMethodName,
		api.Membership_Renew_FullMethodName,
		api.Membership_CheckApps_FullMethodName,
		api.Membership_CheckHeld_FullMethodName:
		return []certs.Role{certs.RoleNode}
	case api.Operator_Decommission_FullMethodName,
		api.Operator_Recommission_FullMethodName,
		api.Operator_Deactivate_FullMethodName,
		api.Operator_Forget_FullMethodName,
		api.Operator_RefreshNodes_FullMethodName,
		api.Operator_ScheduleMaintenance_FullMethodName,
		api.Operator_ChangeMachines_FullMethodName,
		api.Operator_ChangeMembers_FullMethodName,
		api.Operator_TransferLeadership_FullMethodName,
		api.Operator_SaveSnapshot_FullMethodName,
		api.Operator_ReleaseBrake_FullMethodName,
		api.Operator_CreateToken_FullMethodName,
		api.Operator_ListTokens_FullMethodName,
		api.Operator_RevokeToken_FullMethodName,
		api.Operator_Revoke_FullMethodName,
		api.Operator_ListRevoked_FullMethodName,
		api.Operator_ListAudit_FullMethodName,
		api.Operator_EndApps_FullMethodName:
		return []certs.Role{certs.RoleOperator}
	case api.Operator_ListNodes_FullMethodName,
		api.Operator_GetNode_FullMethodName,
		api.Operator_Locate_FullMethodName,
		api.Operator_Events_FullMethodName,
		api.Operator_GetStatus_FullMethodName,
		api.Operator_ListApps_FullMethodName,
		api.Operator_GetMaintenance_FullMethodName:
		return []certs.Role{certs.RoleNode, certs.RoleOperator, certs.RoleApp}
	case api.Operator_BeatApp_FullMethodName:
		return []certs.Role{certs.RoleOperator, certs.RoleApp}
	case api.Operator_ListBlocks_FullMethodName,
		api.Operator_GetManifest_FullMethodName:
		return []certs.Role{certs.RoleNode, certs.RoleOperator}
	case api.Coordination_GetPosition_FullMethodName,
		api.Coordination_KeepManifest_FullMethodName,
		api.Coordination_FetchManifest_FullMethodName:
		return []certs.Role{certs.RoleCoordinator}
	}
	return nil
}

// caller is the name in the caller's certificate.
func caller(ctx context.Context) (certs.Name, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return certs.Name{}, status.Error(codes.Unauthenticated, "the caller is not known")
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok {
		return certs.Name{}, status.Error(codes.Unauthenticated, "the caller showed no certificate")
	}
	name, err := certs.PeerName(info.State)
	if err != nil {
		return certs.Name{}, status.Errorf(codes.Unauthenticated, "the caller's certificate: %v", err)
	}
	return name, nil
}

// access knows whose certificates are good, who may join, and what makes new ones.
type access struct {
	log       *slog.Logger
	ledger    *ledger
	denials   *denials
	identity  *certs.Identity
	authority *certs.Authority // nil: no certificates are made here
}

func (ac *access) authorise(ctx context.Context, method string) error {
	name, err := caller(ctx)
	if err != nil {
		return err
	}
	conn, _ := peer.FromContext(ctx)
	if err := ac.identity.Trusts(conn.AuthInfo.(credentials.TLSInfo).State); err != nil { // caller has looked
		return status.Errorf(codes.Unauthenticated, "%v", err)
	}
	roles := mayCall(method)
	if slices.Contains(roles, name.Role) {
		return nil
	}
	if slices.Equal(roles, []certs.Role{certs.RoleOperator}) {
		return status.Errorf(codes.PermissionDenied, "%s may not call %s: use an operator's certificate (--tls-dir)", name, method)
	}
	return status.Errorf(codes.PermissionDenied, "%s may not call %s", name, method)
}

// speaker is the node that calls. It fails if the message claims to be of another node: a node may speak for itself alone.
func speaker(ctx context.Context, claimed string) (string, error) {
	name, err := caller(ctx)
	if err != nil {
		return "", err
	}
	if claimed != name.Name {
		return "", status.Errorf(codes.PermissionDenied, "%s may not speak for node %q: set node.name to the name in its certificate", name, claimed)
	}
	return name.Name, nil
}

package api

// What a machine without a certificate and a coordinator say to each other over HTTP, on the coordinator's port for calls:
// GET /ca answers the fleet's CAs in PEM form, POST /join takes a JoinRequest and answers a JoinReply or a JoinRefusal.

// JoinProtocol is what a connection says in its handshake (RFC 7301) that is there to join. Such a connection needs no
// certificate, and can do nothing else.
const JoinProtocol = "lifeboat-join/1"

// JoinRequest asks for a certificate. A Token or a Document says why there should be one.
type JoinRequest struct {
	Name     string    `json:"name"`
	Request  []byte    `json:"request"` // a certificate request, DER
	Token    string    `json:"token,omitempty"`
	Document *Document `json:"document,omitempty"`
}

// Document is a cloud's signed word on which machine this is.
type Document struct {
	Provider string `json:"provider"` // ec2, gce, azure
	Signed   []byte `json:"signed"`   // as the cloud's metadata service gives it
}

// JoinReply is a certificate and all that it takes to use it.
type JoinReply struct {
	Name         string   `json:"name"` // role and name, as in the certificate
	Certificate  string   `json:"certificate"`
	CA           string   `json:"ca"`
	Coordinators []string `json:"coordinators"` // where they are, as they know each other
}

// JoinRefusal is why not. With a Leader the same request may do well there.
type JoinRefusal struct {
	Error  string `json:"error"`
	Leader string `json:"leader,omitempty"`
}

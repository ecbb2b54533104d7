package api

// AccountStore is the store whose blocks are accounts of drains, which nodes leave with their peers: no store of a node's
// own may have its name.
const AccountStore = "lifeboat"

// AccountName is the name of an account in that store, in its directory and behind its id: AccountPrefix and the incident.
// The block is what GetManifest sends, each message after its length as a varint.
func AccountName(node, incident string) string { return "manifest/" + node + "/" + incident }

// AccountPrefix begins the ids of all accounts of a node.
func AccountPrefix(node string) string { return AccountStore + "/-/" + AccountName(node, "") }

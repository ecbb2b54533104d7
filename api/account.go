package api

// AccountStore is the store of the accounts of drains: a leaving node sends its account to a peer, as a block of this
// store. No store of a node's own may have its name.
const AccountStore = "lifeboat"

// AccountName is the name of an account's block, as its path in the store's directory and as the last part of its id:
// AccountPrefix and the incident. The block has the messages that GetManifest sends, each after its length as a varint.
func AccountName(node, incident string) string { return "manifest/" + node + "/" + incident }

// AccountPrefix is what the ids of all accounts of a node begin with.
func AccountPrefix(node string) string { return AccountStore + "/-/" + AccountName(node, "") }

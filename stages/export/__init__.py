"""`export`: what ledger, gate, policy and metadata know, as a document that somebody else's process reads."""

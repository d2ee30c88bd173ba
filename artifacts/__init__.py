"""The file formats: kinds, metadata, digests, lineage, atomic writing, the egress ledger."""

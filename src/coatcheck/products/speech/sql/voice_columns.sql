-- The columns of a voice, in the order of StoredVoice.
v.id, v.blob_key, v.created_at, v.bytes, v.sha256, v.duration_seconds

INSERT INTO process (id, beat_at) VALUES (:id, :now)
ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at

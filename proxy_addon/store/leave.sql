DELETE FROM process WHERE id = :id

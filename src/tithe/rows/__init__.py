"""Where rows come from: arrays, frames, batches, files, stores and pipes, and what columns of tables mean."""

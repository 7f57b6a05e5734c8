-- Granules of width G, of which the newest W/G count. See sliding_window.go.

return run(granules(0))

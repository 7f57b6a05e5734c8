-- Granules of width G, of which the newest W/G count. See sliding_window.go.

local LATE = 0

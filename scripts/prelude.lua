-- The beginning of every script. README.md has the calling convention, and says
-- how a script is put together.
--
-- All numbers are whole and below 2^53. Never .. or tostring one: above 1e14 that
-- loses digits. As arguments of redis.call they keep all of them. 2^53 is written
-- so, and has no name: a local that functions share is made anew with every call.

local KEYS, ARGV, call, byte, char = KEYS, ARGV, redis.call, string.byte, string.char
local op, own_clock = ARGV[1], ARGV[2] == '-1'

-- A state is a string of numbers of seven bytes each, the highest byte first: not
-- half as long as their digits, and read in half the time. No text is taken for one:
-- its numbers are above 2^53.

local function number(state, i) -- whose first byte is the i-th
  local a, b, c, d, e, f, g = byte(state, i, i + 6)
  return a * 2^48 + b * 2^40 + c * 2^32 + d * 2^24 + e * 2^16 + f * 2^8 + g
end

local function four(state) -- the first numbers of a state, at once
  local a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B = byte(state, 1, 28)
  return a * 2^48 + b * 2^40 + c * 2^32 + d * 2^24 + e * 2^16 + f * 2^8 + g,
    h * 2^48 + i * 2^40 + j * 2^32 + k * 2^24 + l * 2^16 + m * 2^8 + n,
    o * 2^48 + p * 2^40 + q * 2^32 + r * 2^24 + s * 2^16 + t * 2^8 + u,
    v * 2^48 + w * 2^40 + x * 2^32 + y * 2^24 + z * 2^16 + A * 2^8 + B
end

local function bytes(n)
  local g = n % 256
  n = (n - g) / 256
  local f = n % 256
  n = (n - f) / 256
  local e = n % 256
  n = (n - e) / 256
  local d = n % 256
  n = (n - d) / 256
  local c = n % 256
  n = (n - c) / 256
  local b = n % 256
  return char((n - b) / 256, b, c, d, e, f, g)
end


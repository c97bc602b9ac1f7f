-- Strings in a table, visited and replaced in random order; integers below 2^53, so that LuaJIT's numbers hold them. usage: records.lua MEBIBYTES
local count = math.floor(tonumber(arg[1]) * 1048576 / 300)
local function record(i) return string.format("%09d", i):rep(28) end
local records = {}
for i = 1, count do records[i] = record(i) end
local x, sum = 1, 0
for visit = 1, 24000 do
    x = (x * 69069 + 12345) % 2147483648
    local at = math.floor(x / 16) % count + 1
    sum = (sum * 31 + records[at]:byte(x % 252 + 1)) % 4294967296
    if visit % 4 == 0 then records[at] = record(x) end
end
print(string.format("%d records, sum %d", count, sum))

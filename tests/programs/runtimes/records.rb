# Strings in an array, visited and replaced in random order. usage: records.rb MEBIBYTES
count = (ARGV[0].to_i << 20) / 320
record = ->(i) { format('%09d', i) * 28 }
records = Array.new(count) { |i| record.(i) }
x, sum = 1, 0
1.upto(24_000) do |visit|
  x = (x * 1103515245 + 12345) & 0x7fffffff
  at = (x >> 4) % count
  sum = (sum * 31 + records[at].getbyte(x % 252)) & 0xffffffff
  records[at] = record.(x) if visit % 4 == 0
end
puts "#{count} records, sum #{sum}"

# Strings in an array, visited and replaced in random order. usage: records.pl MEBIBYTES
use strict;
use warnings;
use integer;
my ($bytes, $x, $sum) = ($ARGV[0] << 20, 1, 0);
my $count = $bytes / 320;
sub record { my $i = shift; return sprintf("%09d", $i) x 28; }
my @records = map { record($_) } 0 .. $count - 1;
for my $visit (1 .. 24000) {
    $x = ($x * 1103515245 + 12345) & 0x7fffffff;
    my $at = ($x >> 4) % $count;
    $sum = ($sum * 31 + ord(substr($records[$at], $x % 252, 1))) & 0xffffffff;
    $records[$at] = record($x) if $visit % 4 == 0;
}
print "$count records, sum $sum\n";

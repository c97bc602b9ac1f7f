<?php
// Strings in an array, visited and replaced in random order. usage: records.php MEBIBYTES
ini_set('memory_limit', '-1');
$count = intdiv((int)$argv[1] << 20, 310);
function record(int $i): string { return str_repeat(sprintf('%09d', $i), 28); }
$records = [];
for ($i = 0; $i < $count; $i++) $records[] = record($i);
[$x, $sum] = [1, 0];
for ($visit = 1; $visit <= 24000; $visit++) {
    $x = ($x * 1103515245 + 12345) & 0x7fffffff;
    $at = ($x >> 4) % $count;
    $sum = ($sum * 31 + ord($records[$at][$x % 252])) & 0xffffffff;
    if ($visit % 4 == 0) $records[$at] = record($x);
}
echo "$count records, sum $sum\n";

# Strings in a table, visited and replaced in random order. usage: gawk -f records.awk MEBIBYTES
function record(i,  text, n) {
    for (n = 0; n < 28; n++) text = text sprintf("%09d", i)
    return text
}
BEGIN {
    count = int(ARGV[1] * 1048576 / 450)
    for (i = 0; i < count; i++) records[i] = record(i)
    x = 1
    for (visit = 1; visit <= 24000; visit++) {
        x = (x * 69069 + 12345) % 2147483648
        at = int(x / 16) % count
        sum = (sum * 31 + substr(records[at], x % 252 + 1, 1)) % 4294967296
        if (visit % 4 == 0) records[at] = record(x)
    }
    printf "%d records, sum %d\n", count, sum
}

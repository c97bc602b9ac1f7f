// Byte arrays in an array, visited and replaced in random order, one thread collecting beside. usage: mono Records.exe MEBIBYTES
using System;

static class Records {
    static byte[] Record(long i) {
        var record = new byte[252];
        for (int at = 0; at < record.Length; at++) record[at] = (byte)(i + at);
        return record;
    }

    static void Main(string[] words) {
        long count = long.Parse(words[0]) * 1048576 / 300, x = 1, sum = 0;
        var records = new byte[count][];
        for (long i = 0; i < count; i++) records[i] = Record(i);
        for (int visit = 1; visit <= 24000; visit++) {
            x = (x * 1103515245 + 12345) & 0x7fffffff;
            long at = (x >> 4) % count;
            sum = (sum * 31 + records[at][x % 252]) & 0xffffffff;
            if (visit % 4 == 0) records[at] = Record(x);
        }
        Console.WriteLine("{0} records, sum {1}", count, sum);
    }
}

/** Byte arrays in an array, visited and replaced in random order. usage: java Records MEBIBYTES */
public final class Records {
    public static void main(String[] arguments) {
        int count = (int) ((Long.parseLong(arguments[0]) << 20) / 272);
        byte[][] records = new byte[count][];
        for (int i = 0; i < count; i++) records[i] = record(i);
        long x = 1, sum = 0;
        for (int visit = 1; visit <= 24000; visit++) {
            x = (x * 1103515245 + 12345) & 0x7fffffff;
            int at = (int) ((x >> 4) % count);
            sum = (sum * 31 + records[at][(int) (x % 252)]) & 0xffffffffL;
            if (visit % 4 == 0) records[at] = record((int) x);
        }
        System.out.println(count + " records, sum " + sum);
    }

    private static byte[] record(int i) {
        byte[] bytes = new byte[252];
        java.util.Arrays.fill(bytes, (byte) (i % 127));
        return bytes;
    }
}

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Fills most of a Java heap with small objects and arrays, makes garbage on the way, and prints checksums.
 *
 * usage: java Heap BYTES    (live bytes to aim at)
 */
public final class Heap {
    record Item(long key, String text, int[] numbers) {}

    public static void main(String[] arguments) throws InterruptedException {
        long bytes = Long.parseLong(arguments[0]);
        int items = (int) (bytes / 2 / 300);
        Map<Long, Item> table = new HashMap<>();
        long seed = 42;
        for (int i = 0; i < items; i++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            int[] numbers = new int[24 + i % 16];
            for (int n = 0; n < numbers.length; n++) numbers[n] = (int) (seed >>> 32) + n;
            table.put((long) i, new Item(seed, Long.toHexString(seed) + "-" + i, numbers));
        }
        System.out.println("items " + table.size() + " " + sum(table));

        List<long[]> blocks = new ArrayList<>();
        int words = 1 << 15;
        for (long used = 0; used < bytes / 2; used += words * 8L) {
            long[] block = new long[words];
            for (int n = 0; n < words; n++) block[n] = blocks.size() * 31L + n;
            blocks.add(block);
        }
        long total = 0;
        for (long[] block : blocks) for (long word : block) total = total * 31 + word;
        System.out.println("blocks " + blocks.size() + " " + total);

        long[] sums = new long[2];
        Thread[] threads = new Thread[2];
        for (int t = 0; t < 2; t++) {
            int half = t;
            threads[t] = new Thread(() -> {
                for (long i = half; i < items; i += 2) sums[half] += table.get(i).numbers()[3];
            });
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println("threads " + sums[0] + " " + sums[1]);

        for (int i = 0; i < items; i += 3) table.remove((long) i);
        blocks.clear();
        System.gc();
        System.out.println("left " + table.size() + " " + sum(table));
    }

    private static long sum(Map<Long, Item> table) {
        long sum = 0;
        for (Item item : table.values()) sum += item.key() ^ item.text().hashCode() ^ item.numbers()[item.numbers().length - 1];
        return sum;
    }
}

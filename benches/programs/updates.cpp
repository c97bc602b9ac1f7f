// Structures of which an update changes a few words.
//
// usage: updates hash|tree MIB      (about so much memory)
// Output: what is in it in the end, the same on every run and build; on standard error the seconds of the updates without what fills the memory.
//
//   hash    counts by key, in a hash table that is half full and was filled in order: increments for keys in any order
//   tree    a B-tree with nodes of 1 KiB: keys in any order are inserted into one that is filled in order
#include "common.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

struct Slot {
    uint64_t key, count;
};

// A power of two has no slot that two keys share, and another product leads back.
static constexpr uint64_t factor = 0x9e3779b97f4a7c15u, inverse = 0xf1de83e19937733du;
static_assert(factor * inverse == 1);

static void count_keys(uint64_t bytes) {
    uint64_t size = uint64_t(1) << (63 - __builtin_clzll(bytes / sizeof(Slot))), keys = size / 2;
    auto table = std::make_unique<Slot[]>(size);
    for (uint64_t at = 0; at < size; at++) {
        uint64_t key = at * inverse & (size - 1);
        if (key && key <= keys) table[at] = {key, 1};
    }
    {
        Timed timed;
        for (uint64_t i = 0; i < 100000; i++) {
            uint64_t key = 1 + next() % keys, at = key * factor & (size - 1);
            while (table[at].key != key) at = (at + 1) & (size - 1);
            table[at].count++;
        }
    }
    uint64_t most = 0, sum = 0;
    for (uint64_t i = 0; i < size; i++) most = std::max(most, table[i].count), sum += table[i].count * table[i].key;
    printf("hash: %llu keys, at most %llu, sum %llu\n", (unsigned long long)keys, (unsigned long long)most, (unsigned long long)sum);
}

// Of a leaf, keys and values; of the others, the least key of each child and the child.
struct Node {
    static constexpr uint32_t room = 63;
    uint32_t used = 0, is_leaf = 1;
    uint64_t unused = 0, keys[room], values[room];
};
static_assert(sizeof(Node) == 1024);

struct Tree {
    std::vector<std::unique_ptr<Node[]>> blocks;
    uint64_t nodes = 0, root;
    static constexpr uint64_t in_block = 1024;

    Tree() : root(add()) {}
    Node &node(uint64_t number) { return blocks[number / in_block][number % in_block]; }
    uint64_t add() {
        if (nodes % in_block == 0) blocks.push_back(std::make_unique<Node[]>(in_block));
        return nodes++;
    }

    // The last entry whose key is at most `key`, or the first.
    static uint32_t place(const Node &node, uint64_t key) {
        uint32_t at = std::upper_bound(node.keys, node.keys + node.used, key) - node.keys;
        return at ? at - 1 : 0;
    }
    static void put(Node &node, uint32_t at, uint64_t key, uint64_t value) {
        memmove(node.keys + at + 1, node.keys + at, (node.used - at) * 8);
        memmove(node.values + at + 1, node.values + at, (node.used - at) * 8);
        node.keys[at] = key, node.values[at] = value, node.used++;
    }

    // Splits a full child: its upper half becomes a node of its own.
    void split(uint64_t parent, uint32_t at) {
        uint64_t right = add(), left = node(parent).values[at];
        Node &from = node(left), &to = node(right);
        uint32_t half = from.used / 2;
        to.is_leaf = from.is_leaf, to.used = from.used - half;
        memcpy(to.keys, from.keys + half, to.used * 8);
        memcpy(to.values, from.values + half, to.used * 8);
        from.used = half;
        put(node(parent), at + 1, to.keys[0], right);
    }

    void insert(uint64_t key, uint64_t value) {
        if (node(root).used == Node::room) {
            uint64_t old = root;
            root = add();
            node(root).is_leaf = 0;
            put(node(root), 0, node(old).keys[0], old);
            split(root, 0);
        }
        uint64_t at = root;
        while (!node(at).is_leaf) {
            uint32_t child = place(node(at), key);
            if (node(node(at).values[child]).used == Node::room) {
                split(at, child);
                child = place(node(at), key);
            }
            node(at).keys[child] = std::min(node(at).keys[child], key);
            at = node(at).values[child];
        }
        Node &leaf = node(at);
        uint32_t found = std::lower_bound(leaf.keys, leaf.keys + leaf.used, key) - leaf.keys;
        if (found < leaf.used && leaf.keys[found] == key) leaf.values[found] += value;
        else put(leaf, found, key, value);
    }
};

static void insert_keys(uint64_t bytes) {
    Tree tree;
    // A node that was split in order is half full.
    uint64_t keys = bytes / sizeof(Node) * (Node::room / 2);
    for (uint64_t key = 0; key < keys; key++) tree.insert(key << 20, key);
    {
        Timed timed;
        for (uint64_t i = 0; i < 50000; i++) tree.insert((next() % keys) << 20 | (next() & 0xfffff), i);
    }
    uint64_t entries = 0, sum = 0;
    for (uint64_t n = 0; n < tree.nodes; n++) {
        const Node &node = tree.node(n);
        for (uint32_t i = 0; node.is_leaf && i < node.used; i++) entries++, sum += node.keys[i] ^ node.values[i];
    }
    printf("tree: %llu entries in %llu nodes, sum %llu\n", (unsigned long long)entries, (unsigned long long)tree.nodes, (unsigned long long)sum);
}

int main(int argc, char **argv) {
    uint64_t bytes = argc > 2 ? strtoull(argv[2], nullptr, 10) << 20 : 0;
    if (bytes && !strcmp(argv[1], "hash")) count_keys(bytes);
    else if (bytes && !strcmp(argv[1], "tree")) insert_keys(bytes);
    else return fprintf(stderr, "usage: updates hash|tree MIB\n"), 2;
}

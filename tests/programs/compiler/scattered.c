// Elements that are found by pointers, in more memory than is local; those that a loop begins with are local, and so are the pointers.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 48 << 10 };

struct element {
    struct element *next;
    uint64_t key, rest[126];
};

__attribute__((noinline)) uint64_t follow(const struct element *element) {
    uint64_t sum = 0;
    for (; element; element = element->next) sum = sum * 7 + element->key;
    return sum;
}

__attribute__((noinline)) uint64_t add(struct element *const *elements, long count) {
    uint64_t sum = 0;
    for (long i = 0; i < count; i++) sum += elements[i]->key;
    return sum;
}

int main(void) {
    struct element *all = malloc(COUNT * sizeof *all), *head = NULL;
    for (long i = 0; i < COUNT; i++) {
        all[i] = (struct element){.next = head, .key = (uint64_t)i * i};
        head = &all[i];
    }
    printf("%lu\n", follow(head));
    struct element **elements = malloc(COUNT * sizeof *elements);
    for (long i = 0; i < COUNT; i++) elements[i] = &all[i * 1021 % COUNT];
    printf("%lu\n", add(elements, COUNT));
    return 0;
}

// Inference with GPT-2 (Radford et al., Language Models are Unsupervised Multitask Learners): its layers and sizes, random weights.
//
// usage: gpt2 124m|small BATCH TOKENS      (so many texts at once, of so many tokens each)
// Output: the tokens' sum for each text, the same on every run and build; on standard error the seconds without what fills the weights,
// the bytes of the weights, and the rate of the matrix products.
//
// Each step computes the next token of all texts; the keys and values of the tokens before are kept. The weights of a matrix lie in panels of
// 16 columns, which a product walks once, for all texts together.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PANEL = 16, ROWS = 4 };
typedef float vector __attribute__((vector_size(32), aligned(4)));

struct sizes {
    const char *name;
    size_t layers, heads, width, words, context;
};
static const struct sizes all[] = {{"124m", 12, 12, 768, 50257, 1024}, {"small", 4, 4, 256, 4096, 256}};

// out = in × weights + bias; weights as panels [columns / PANEL][rows][PANEL].
struct matrix {
    size_t rows, columns;
    float *panels, *bias;
};

struct layer {
    float *norm1, *norm2; // scale, then shift
    struct matrix qkv, project, expand, contract;
    float *keys, *values; // [text][token][width]
};

static uint64_t state = 1, weight_bytes, products;
static double product_seconds;

static uint64_t next(void) {
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static float *floats(size_t count) {
    float *made = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
    if (!made) fprintf(stderr, "gpt2: out of memory\n"), exit(1);
    return made;
}

static float *weights(size_t count, float scale) {
    float *made = floats(count);
    for (size_t i = 0; i < count; i++) made[i] = ((float)(next() >> 40) / (float)(1 << 23) - 1) * scale;
    weight_bytes += count * sizeof(float);
    return made;
}

static struct matrix matrix(size_t rows, size_t columns) {
    size_t padded = (columns + PANEL - 1) / PANEL * PANEL;
    struct matrix made = {rows, columns, weights(rows * padded, 0.06f), weights(padded, 0.01f)};
    return made;
}

static float *norm(size_t width) {
    float *made = weights(2 * width, 0.1f);
    for (size_t i = 0; i < width; i++) made[i] += 1;
    return made;
}

// The panel of weights is walked once for each ROWS rows of `in`: it stays in the cache of the processor.
static inline void panel(const float *restrict weights, const float *restrict bias, const float *restrict in, size_t rows, float *restrict out,
                         size_t stride, size_t columns, size_t count) {
    vector sums[ROWS][2];
    for (size_t row = 0; row < count; row++) memcpy(sums[row], bias, sizeof sums[row]);
    for (size_t row = count; row < ROWS; row++) memcpy(sums[row], bias, sizeof sums[row]);
    const float *from[ROWS];
    for (size_t row = 0; row < ROWS; row++) from[row] = in + (row < count ? row : 0) * rows;
    for (size_t k = 0; k < rows; k++) {
        const vector *weight = (const vector *)(weights + k * PANEL);
        for (size_t row = 0; row < ROWS; row++) {
            sums[row][0] += from[row][k] * weight[0];
            sums[row][1] += from[row][k] * weight[1];
        }
    }
    for (size_t row = 0; row < count; row++) memcpy(out + row * stride, sums[row], columns * sizeof(float));
}

__attribute__((noinline)) void product(const struct matrix *matrix, const float *in, size_t texts, float *out) {
    double begun = now();
    size_t panels = (matrix->columns + PANEL - 1) / PANEL;
    for (size_t at = 0; at < panels; at++) {
        const float *weights = matrix->panels + at * matrix->rows * PANEL;
        size_t columns = at + 1 < panels ? PANEL : matrix->columns - at * PANEL;
        for (size_t text = 0; text < texts; text += ROWS)
            panel(weights, matrix->bias + at * PANEL, in + text * matrix->rows, matrix->rows, out + text * matrix->columns + at * PANEL, matrix->columns,
                  columns, texts - text < ROWS ? texts - text : ROWS);
    }
    product_seconds += now() - begun;
    products += 2 * matrix->rows * matrix->columns * texts;
}

static void normalize(const float *scale, const float *in, size_t width, float *out) {
    float mean = 0, spread = 0;
    for (size_t i = 0; i < width; i++) mean += in[i];
    mean /= (float)width;
    for (size_t i = 0; i < width; i++) spread += (in[i] - mean) * (in[i] - mean);
    float by = 1 / sqrtf(spread / (float)width + 1e-5f);
    for (size_t i = 0; i < width; i++) out[i] = (in[i] - mean) * by * scale[i] + scale[width + i];
}

// One text's attention to its `tokens` tokens, the newest included.
static void attend(const struct sizes *sizes, const float *query, const float *keys, const float *values, size_t tokens, float *scores, float *out) {
    size_t width = sizes->width, part = width / sizes->heads;
    for (size_t head = 0; head < width; head += part) {
        float most = -INFINITY, sum = 0;
        for (size_t token = 0; token < tokens; token++) {
            float score = 0;
            for (size_t i = 0; i < part; i++) score += query[head + i] * keys[token * width + head + i];
            scores[token] = score / sqrtf((float)part);
            most = scores[token] > most ? scores[token] : most;
        }
        for (size_t token = 0; token < tokens; token++) sum += scores[token] = expf(scores[token] - most);
        memset(out + head, 0, part * sizeof(float));
        for (size_t token = 0; token < tokens; token++)
            for (size_t i = 0; i < part; i++) out[head + i] += scores[token] / sum * values[token * width + head + i];
    }
}

static size_t likeliest(const float *scores, size_t words) {
    size_t best = 0;
    for (size_t word = 1; word < words; word++) best = scores[word] > scores[best] ? word : best;
    return best;
}

int main(int argc, char **argv) {
    const struct sizes *sizes = NULL;
    for (size_t i = 0; argc == 4 && i < sizeof all / sizeof *all; i++) sizes = strcmp(argv[1], all[i].name) ? sizes : &all[i];
    size_t texts = argc == 4 ? strtoul(argv[2], NULL, 10) : 0, tokens = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if (!sizes || !texts || !tokens || tokens > sizes->context) return fprintf(stderr, "usage: gpt2 124m|small BATCH TOKENS\n"), 2;

    size_t width = sizes->width;
    float *embedding = weights(sizes->words * width, 0.06f), *positions = weights(sizes->context * width, 0.02f), *last = norm(width);
    struct matrix words = matrix(width, sizes->words);
    struct layer *layers = calloc(sizes->layers, sizeof *layers);
    for (size_t at = 0; at < sizes->layers; at++) {
        layers[at] = (struct layer){norm(width), norm(width), matrix(width, 3 * width), matrix(width, width), matrix(width, 4 * width), matrix(4 * width, width),
                                    floats(texts * tokens * width), floats(texts * tokens * width)};
    }
    float *stream = floats(texts * width), *normal = floats(texts * width), *attended = floats(texts * width);
    float *wide = floats(texts * 4 * width), *scores = floats(texts * sizes->words), *weighed = floats(sizes->context);
    size_t *token = calloc(texts, sizeof *token), *sums = calloc(texts, sizeof *sums);
    for (size_t text = 0; text < texts; text++) token[text] = next() % sizes->words;

    double begun = now();
    for (size_t at = 0; at < tokens; at++) {
        for (size_t text = 0; text < texts; text++)
            for (size_t i = 0; i < width; i++) stream[text * width + i] = embedding[token[text] * width + i] + positions[at * width + i];
        for (size_t depth = 0; depth < sizes->layers; depth++) {
            struct layer *layer = &layers[depth];
            for (size_t text = 0; text < texts; text++) normalize(layer->norm1, stream + text * width, width, normal + text * width);
            product(&layer->qkv, normal, texts, wide);
            for (size_t text = 0; text < texts; text++) {
                float *keys = layer->keys + text * tokens * width, *values = layer->values + text * tokens * width, *own = wide + text * 3 * width;
                memcpy(keys + at * width, own + width, width * sizeof(float));
                memcpy(values + at * width, own + 2 * width, width * sizeof(float));
                attend(sizes, own, keys, values, at + 1, weighed, attended + text * width);
            }
            product(&layer->project, attended, texts, normal);
            for (size_t i = 0; i < texts * width; i++) stream[i] += normal[i];
            for (size_t text = 0; text < texts; text++) normalize(layer->norm2, stream + text * width, width, normal + text * width);
            product(&layer->expand, normal, texts, wide);
            for (size_t i = 0; i < texts * 4 * width; i++)
                wide[i] = 0.5f * wide[i] * (1 + tanhf(0.79788456f * (wide[i] + 0.044715f * wide[i] * wide[i] * wide[i])));
            product(&layer->contract, wide, texts, normal);
            for (size_t i = 0; i < texts * width; i++) stream[i] += normal[i];
        }
        for (size_t text = 0; text < texts; text++) normalize(last, stream + text * width, width, normal + text * width);
        product(&words, normal, texts, scores);
        for (size_t text = 0; text < texts; text++) sums[text] += token[text] = likeliest(scores + text * sizes->words, sizes->words);
    }
    fprintf(stderr, "seconds %.6f\nweight_bytes %lu\ngflops %.2f\n", now() - begun, weight_bytes, (double)products / product_seconds * 1e-9);
    for (size_t text = 0; text < texts; text++) printf("%zu\n", sums[text]);
    return 0;
}

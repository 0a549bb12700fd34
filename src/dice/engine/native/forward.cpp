// One forward of SDAR (Qwen3 under a block-causal mask) over packed tokens, for CPU cores.
//
// Everything is one kind of product: up to 6 rows times a panel of 16 columns, accumulated over k in order.
// Weights are packed in panels [k][16]; so are keys (16 positions, [d][16]); values are rows [position][d].
// A row's result therefore does not depend on which other rows are computed with it.
//
// Weights may be stored as bfloat16 where that is exact: they are widened when read, so that half the bytes
// are moved and no digit changes.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <omp.h>

namespace {

typedef float F8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t I8 __attribute__((vector_size(32)));
typedef uint32_t U8 __attribute__((vector_size(32)));
typedef uint16_t H8 __attribute__((vector_size(16), aligned(2), may_alias));

constexpr int kColumns = 16;
constexpr int kRows = 6;

inline F8 load(const float* from) { return *reinterpret_cast<const F8*>(from); }
inline F8 load(const uint16_t* from) {
  return (F8)(__builtin_convertvector(*reinterpret_cast<const H8*>(from), U8) << 16);
}
inline F8 splat(float v) { return F8{v, v, v, v, v, v, v, v}; }

// e^x for x <= 0, to 2 units in the last place (Cephes' polynomial).
inline F8 exp8(F8 x) {
  x = x < -87.0f ? splat(-87.0f) : x;
  const F8 rounder = splat(12582912.0f);
  const F8 n = (x * 1.44269504f + rounder) - rounder;
  const F8 r = x - n * 0.693359375f + n * 2.12194440e-4f;
  F8 p = splat(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f})
    p = p * r + c;
  p = p * r * r + r + 1.0f;
  return p * (F8)((__builtin_convertvector(n, I8) + 127) << 23);
}

template <int R, class W>
void tile_of(const float* x, long x_stride, const W* w, long w_stride, long depth, float* sums) {
  F8 low[R], high[R];
  for (int r = 0; r < R; ++r) {
    low[r] = load(sums + r * kColumns);
    high[r] = load(sums + r * kColumns + 8);
  }
  for (long k = 0; k < depth; ++k, w += w_stride) {
    const F8 w_low = load(w), w_high = load(w + 8);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const F8 value = splat(x[r * x_stride + k]);
      low[r] += value * w_low;
      high[r] += value * w_high;
    }
  }
  for (int r = 0; r < R; ++r) {
    *reinterpret_cast<F8*>(sums + r * kColumns) = low[r];
    *reinterpret_cast<F8*>(sums + r * kColumns + 8) = high[r];
  }
}

// sums[r][0:16] += sum over k of x[r][k] * w[k][0:16]
template <class W>
void tile(int rows, const float* x, long x_stride, const W* w, long w_stride, long depth, float* sums) {
  switch (rows) {
    case 1: return tile_of<1>(x, x_stride, w, w_stride, depth, sums);
    case 2: return tile_of<2>(x, x_stride, w, w_stride, depth, sums);
    case 3: return tile_of<3>(x, x_stride, w, w_stride, depth, sums);
    case 4: return tile_of<4>(x, x_stride, w, w_stride, depth, sums);
    case 5: return tile_of<5>(x, x_stride, w, w_stride, depth, sums);
    default: return tile_of<6>(x, x_stride, w, w_stride, depth, sums);
  }
}

// Calls body(first row, number of rows) for groups of at most 6 rows, as equal as possible.
template <class Body>
void in_groups(long rows, Body body) {
  const long groups = (rows + kRows - 1) / kRows;
  for (long g = 0; g < groups; ++g) {
    const long from = rows * g / groups;
    body(from, static_cast<int>(rows * (g + 1) / groups - from));
  }
}

// To be called by every thread of a team: store(row, column, columns, sums) of each row and panel of x @ w.
// `Panels` of neighbouring panels are computed for the same store.
template <int Panels, class W, class Store>
void product(const float* x, long rows, long depth, const W* w, long columns, Store store) {
  const long panels = (columns + kColumns - 1) / kColumns;
#pragma omp for schedule(static)
  for (long p = 0; p < panels; ++p) {
    in_groups(rows, [&](long from, int count) {
      float sums[Panels][kRows * kColumns] = {};
      for (int part = 0; part < Panels; ++part)
        tile(count, x + from * depth, depth, w + (p * Panels + part) * depth * kColumns, kColumns, depth,
             sums[part]);
      for (int r = 0; r < count; ++r)
        store(from + r, p * kColumns, std::min<long>(kColumns, columns - p * kColumns), sums[0] + r * kColumns);
    });
  }
}

float root_mean_square(const float* x, long size, float eps) {
  F8 sums = {};
  long i = 0;
  for (; i + 8 <= size; i += 8) sums += load(x + i) * load(x + i);
  float sum = 0;
  for (int lane = 0; lane < 8; ++lane) sum += sums[lane];
  for (; i < size; ++i) sum += x[i] * x[i];
  return std::sqrt(sum / size + eps);
}

void norm(const float* x, const float* weight, long size, float eps, float* out) {
  const float scale = 1.0f / root_mean_square(x, size, eps);
  for (long i = 0; i < size; ++i) out[i] = x[i] * scale * weight[i];
}

void rotate(float* x, const float* cosine, const float* sine, long size) {
  const long half = size / 2;
  for (long i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cosine[i] - b * sine[i];
    x[half + i] = b * cosine[half + i] + a * sine[half + i];
  }
}

}  // namespace

extern "C" {

struct Layer {
  const void *qkv, *out, *gate_up, *down;
  const float *qkv_bias, *out_bias;  // null where there is none
  const float *input_norm, *post_norm, *q_norm, *k_norm;
  float *keys, *values;  // [row][kv head][capacity]: panels of keys, rows of values
};

struct Model {
  int64_t hidden, inner, heads, kv_heads, head_dim, vocabulary, capacity, layers;
  float eps;
  const Layer* layer;
  const float *embedding, *norm, *cosine, *sine;  // tables [position][head_dim]
  const void* head;
};

// Queries of one block: packed tokens first..first+count of a row, which see positions 0..seen. Positions
// before `shared` (a multiple of 16) are read from another row.
struct Block {
  int64_t first, count, row, shared_row, shared, seen;
};

struct Step {
  int64_t tokens, blocks, wanted, threads;
  const int64_t *ids, *rows, *positions, *wanted_at;
  const Block* block;
  float* scratch;  // dice_scratch floats
  float* logits;   // [wanted][vocabulary]
};
}

namespace {

long padded(long size) { return (size + kColumns - 1) / kColumns * kColumns; }

struct Widths {
  long q, kv, qkv, head, scores;
  explicit Widths(const Model& m)
      : q(m.heads * m.head_dim), kv(m.kv_heads * m.head_dim), qkv(q + 2 * kv), head(padded(m.head_dim)),
        scores(padded(m.capacity)) {}
};

void attend(const Model& m, const Layer& layer, const Block& block, long kv_head, const float* qkv, float* own,
            float* out) {
  const Widths width(m);
  const long group = m.heads / m.kv_heads, seen = block.seen, reach = padded(seen);
  float *queries = own, *scores = own + kRows * m.head_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(m.head_dim));
  auto keys_at = [&](long position) {
    const long row = position < block.shared ? block.shared_row : block.row;
    return layer.keys + ((row * m.kv_heads + kv_head) * m.capacity + position) * m.head_dim;
  };
  auto values_at = [&](long row, long position) {
    return layer.values + ((row * m.kv_heads + kv_head) * m.capacity + position) * width.head;
  };
  in_groups(block.count * group, [&](long from, int count) {
    for (int r = 0; r < count; ++r) {
      const long token = block.first + (from + r) / group, head = kv_head * group + (from + r) % group;
      std::memcpy(queries + r * m.head_dim, qkv + token * width.qkv + head * m.head_dim, 4 * m.head_dim);
    }
    for (long t = 0; t < reach; t += kColumns) {
      float sums[kRows * kColumns] = {};
      tile(count, queries, m.head_dim, keys_at(t), kColumns, m.head_dim, sums);
      for (int r = 0; r < count; ++r) std::memcpy(scores + r * reach + t, sums + r * kColumns, 4 * kColumns);
    }
    float total[kRows];
    for (int r = 0; r < count; ++r) {
      float* row = scores + r * reach;
      for (long t = seen; t < reach; ++t) row[t] = -INFINITY;
      F8 best8 = load(row);
      for (long t = 8; t < reach; t += 8) best8 = load(row + t) > best8 ? load(row + t) : best8;
      float best = best8[0];
      for (int lane = 1; lane < 8; ++lane) best = std::max(best, best8[lane]);
      F8 sum8 = {};
      for (long t = 0; t < reach; t += 8) {
        const F8 weight = exp8((load(row + t) - best) * scale);
        *reinterpret_cast<F8*>(row + t) = weight;
        sum8 += weight;
      }
      for (long t = seen; t < reach; ++t) row[t] = 0;
      total[r] = 0;
      for (int lane = 0; lane < 8; ++lane) total[r] += sum8[lane];
    }
    const long shared = std::min(block.shared, seen);
    for (long d = 0; d < m.head_dim; d += kColumns) {
      float sums[kRows * kColumns] = {};
      tile(count, scores, reach, values_at(block.shared_row, 0) + d, width.head, shared, sums);
      tile(count, scores + shared, reach, values_at(block.row, shared) + d, width.head, seen - shared, sums);
      for (int r = 0; r < count; ++r) {
        const long token = block.first + (from + r) / group, head = kv_head * group + (from + r) % group;
        float* to = out + token * width.q + head * m.head_dim + d;
        for (long i = 0; i < std::min<long>(kColumns, m.head_dim - d); ++i)
          to[i] = sums[r * kColumns + i] / total[r];
      }
    }
  });
}

// Norms and rotates queries in place; brings keys and values into the cache.
void place(const Model& m, const Layer& layer, long row, long position, float* qkv) {
  const Widths width(m);
  const float *cosine = m.cosine + position * m.head_dim, *sine = m.sine + position * m.head_dim;
  for (long h = 0; h < m.heads + m.kv_heads; ++h) {
    float* x = qkv + h * m.head_dim;
    norm(x, h < m.heads ? layer.q_norm : layer.k_norm, m.head_dim, m.eps, x);
    rotate(x, cosine, sine, m.head_dim);
  }
  for (long h = 0; h < m.kv_heads; ++h) {
    const float *k = qkv + width.q + h * m.head_dim, *v = k + width.kv;
    const long line = (row * m.kv_heads + h) * m.capacity, lane = position % kColumns;
    float* keys = layer.keys + (line + position - lane) * m.head_dim + lane;
    float* values = layer.values + (line + position) * width.head;
    for (long d = 0; d < m.head_dim; ++d) {
      keys[d * kColumns] = k[d];
      values[d] = v[d];
    }
  }
}

template <class W>
void forward(const Model& m, const Step& s) {
  const Widths width(m);
  float* x = s.scratch;
  float* normed = x + s.tokens * m.hidden;
  float* qkv = normed + s.tokens * m.hidden;
  float* heads = qkv + s.tokens * width.qkv;
  float* inner = heads + s.tokens * width.q;
  float* kept = inner + s.tokens * m.inner;
  float* each = kept + s.wanted * (m.hidden + width.q);
  const long each_size = kRows * (m.head_dim + width.scores);
#pragma omp parallel num_threads(s.threads)
  {
    float* own = each + omp_get_thread_num() * each_size;
    float *rows = x, *attended = heads;
    long count = s.tokens;
    auto norm_rows = [&](const float* weight) {
#pragma omp for schedule(static)
      for (long n = 0; n < count; ++n) norm(rows + n * m.hidden, weight, m.hidden, m.eps, normed + n * m.hidden);
    };
    auto add = [&](const float* bias) {
      return [=, &m](long n, long column, long columns, const float* sums) {
        float* to = rows + n * m.hidden + column;
        for (long i = 0; i < columns; ++i) to[i] += sums[i] + (bias ? bias[column + i] : 0.0f);
      };
    };
#pragma omp for schedule(static)
    for (long n = 0; n < s.tokens; ++n)
      std::memcpy(x + n * m.hidden, m.embedding + s.ids[n] * m.hidden, 4 * m.hidden);
    for (long l = 0; l < m.layers; ++l) {
      const Layer& layer = m.layer[l];
      norm_rows(layer.input_norm);
      product<1>(normed, count, m.hidden, static_cast<const W*>(layer.qkv), width.qkv,
                 [&](long n, long column, long columns, const float* sums) {
                   float* to = qkv + n * width.qkv + column;
                   const float* bias = layer.qkv_bias;
                   for (long i = 0; i < columns; ++i) to[i] = sums[i] + (bias ? bias[column + i] : 0.0f);
                 });
#pragma omp for schedule(static)
      for (long n = 0; n < count; ++n) place(m, layer, s.rows[n], s.positions[n], qkv + n * width.qkv);
      // Behind the last layer's keys and values only the wanted tokens matter.
      const bool last = l + 1 == m.layers;
      if (last && s.wanted == 0) break;
      // Heads outside, blocks inside: rows that share a prefix find its keys in a core's own cache.
#pragma omp for schedule(static)
      for (long task = 0; task < m.kv_heads * s.blocks; ++task)
        attend(m, layer, s.block[task % s.blocks], task / s.blocks, qkv, own, heads);
      if (last) {
        rows = kept, attended = kept + s.wanted * m.hidden, count = s.wanted;
#pragma omp for schedule(static)
        for (long n = 0; n < count; ++n) {
          std::memcpy(rows + n * m.hidden, x + s.wanted_at[n] * m.hidden, 4 * m.hidden);
          std::memcpy(attended + n * width.q, heads + s.wanted_at[n] * width.q, 4 * width.q);
        }
      }
      product<1>(attended, count, width.q, static_cast<const W*>(layer.out), m.hidden, add(layer.out_bias));
      norm_rows(layer.post_norm);
      product<2>(normed, count, m.hidden, static_cast<const W*>(layer.gate_up), m.inner,
                 [&](long n, long column, long columns, const float* sums) {
                   float* to = inner + n * m.inner + column;
                   const float* up = sums + kRows * kColumns;
                   float values[kColumns];
                   for (int at = 0; at < kColumns; at += 8) {
                     const F8 gate = load(sums + at), size = gate < 0.0f ? -gate : gate;
                     const F8 tail = exp8(-size);  // of the logistic function, from the side that cannot overflow
                     const F8 sigmoid = (gate < 0.0f ? tail : splat(1.0f)) / (1.0f + tail);
                     *reinterpret_cast<F8*>(values + at) = gate * sigmoid * load(up + at);
                   }
                   std::memcpy(to, values, 4 * columns);
                 });
      product<1>(inner, count, m.inner, static_cast<const W*>(layer.down), m.hidden, add(nullptr));
    }
    if (s.wanted) {
      norm_rows(m.norm);
      product<1>(normed, count, m.hidden, static_cast<const W*>(m.head), m.vocabulary,
                 [&](long n, long column, long columns, const float* sums) {
                   std::memcpy(s.logits + n * m.vocabulary + column, sums, 4 * columns);
                 });
    }
  }
}

}  // namespace

extern "C" {

int64_t dice_scratch(const Model* m, const Step* s) {
  const Widths width(*m);
  return s->tokens * (2 * m->hidden + width.qkv + width.q + m->inner) + s->wanted * (m->hidden + width.q) +
         s->threads * kRows * (m->head_dim + width.scores);
}

void dice_forward_float(const Model* m, const Step* s) { forward<float>(*m, *s); }
void dice_forward_bfloat16(const Model* m, const Step* s) { forward<uint16_t>(*m, *s); }
}

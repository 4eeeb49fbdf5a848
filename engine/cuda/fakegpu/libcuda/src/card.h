// How the libraries ask the process that simulates the card: what serve.go reads and writes.
#pragma once
#include <stddef.h>
#include <stdint.h>

// A question is followed by so many bytes, an answer too.
struct question {
  char call[48];
  uint64_t context, arg[8], bytes;
};
struct answer {
  uint64_t code, value[2], bytes;
};

// The bytes that go out with a question and those that come back with its answer; either may be none.
struct text {
  const void *out;
  size_t out_bytes;
  void *in;
  size_t room; // of in; bytes that do not fit are dropped
  int file;    // goes out too; -1: none
};

// ask_with asks with up to eight arguments of 64 bits, and the context that is current on the thread. libcuda.so.1 has it.
typedef struct answer asking(struct text text, const char *call, int n, ...);

// N counts its arguments, up to 8, all of which become 64 bits wide.
#define N(...) N_(0, ##__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define N_(zero, a, b, c, d, e, f, g, h, n, ...) n
#define W(x) ((uint64_t)(x))
#define NONE ((struct text){.file = -1})
#define ASK(call, ...) ask_with(NONE, call, N(__VA_ARGS__), ##__VA_ARGS__)

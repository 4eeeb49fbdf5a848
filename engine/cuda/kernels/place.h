// Places: comments in the PTX where engine/cuda puts the instructions of a fused body
// (place.go). What a product's result goes through, and how it is stored, is known
// only when a program is compiled; the kernel around it is compiled beforehand.
//
// A place is one line, "//@name key=register ...". The statements are volatile and
// clobber memory, so that the compiler keeps their order.
#pragma once
#include "device.h"

// The body's operands and results, by number. Kernels do not read them: generated
// code does, from the parameter.
struct Operands { u64 p[12]; };

// Loads what the body needs for four neighbors of a row, the first at (row, col),
// into registers of number u. ok is false outside of the result.
#define PLACE_LOAD(u, ...) place_load<u>(__VA_ARGS__)
template <int U> DEV void place_load(u32 row, u32 col, bool ok) {
  asm volatile("//@load u=%0 row=%1 col=%2 ok=%3" ::"n"(U), "r"(row), "r"(col), "r"((u32)ok) : "memory");
}

// The body for these neighbors, whose values are v, and the stores of its results.
#define PLACE_BODY(u, v, ...) place_body<u>(v, __VA_ARGS__)
template <int U> DEV void place_body(const float (&v)[4], u32 row, u32 col, bool ok) {
  asm volatile("//@body u=%0 v0=%1 v1=%2 v2=%3 v3=%4 row=%5 col=%6 ok=%7" ::"n"(U), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "r"(row), "r"(col), "r"((u32)ok) : "memory");
}

// Where tile number t of C [.., n] begins: tiles are numbered row by row along x, the
// one dimension of a grid that is never too short.
template <int S> struct TileAt {
  u32 i0, j0;
  MEMBER TileAt(u32 n, u32 t = BLOCK_X) {
    const u32 columns = (n + S - 1) / S;
    i0 = t / columns * S;
    j0 = t % columns * S;
  }
  // Tiles of C [m, n] are numbered along its shorter side, so that those computed at a time read few
  // rows of either factor: the longer one, which caches may not hold, then comes from memory once.
  MEMBER TileAt(u32 m, u32 n, u32 t) {
    const u32 shorter = (min_(m, n) + S - 1) / S, across = t / shorter * S, along = t % shorter * S;
    i0 = m < n ? along : across;
    j0 = m < n ? across : along;
  }
};
// How many tiles C [m, n] has.
template <int S> DEV u32 tiles_of(u32 m, u32 n) { return (m + S - 1) / S * ((n + S - 1) / S); }

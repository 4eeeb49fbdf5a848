// Made by tools/asm/simd; see coefficients.go there for what each is fitted to.
#pragma once
static constexpr float exp_poly[] = {0x1p-01f, 0x1.555556p-03f, 0x1.5554aep-05f, 0x1.11109p-07f, 0x1.6d7474p-10f, 0x1.a1a15p-13f};
static constexpr float log_poly[] = {0x1.5555a2p-02f, -0x1.000082p-02f, 0x1.996ae4p-03f, -0x1.54dd26p-03f, 0x1.284c7p-03f, -0x1.0e114ap-03f, 0x1.b17874p-04f, -0x1.7a342cp-05f};
static constexpr float sin_poly[] = {-0x1.555546p-03f, 0x1.11076p-07f, -0x1.994eb4p-13f};
static constexpr float cos_poly[] = {0x1.55554ap-05f, -0x1.6c0c8cp-10f, 0x1.9a025ap-16f};
static constexpr float normal_poly[] = {-0x1.51b95cp-03f, -0x1.152344p-03f, -0x1.ca3b1cp-06f, 0x1.2a3bd8p-05f, -0x1.790256p-06f, 0x1.afde66p-03f, -0x1.9db964p-02f, 0x1.0d2384p-01f, -0x1.903e58p-02f, 0x1.cceac6p-04f};

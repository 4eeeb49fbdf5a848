#include "attention_mma.h"
ATTENTION(16)

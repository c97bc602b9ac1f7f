// Chains: `for (p = head; p; p = p->next)`. The next element is asked for as soon as its address can be read, before this one is worked on.
#pragma once

#include "analysis.h"

namespace hinterland {

// The load of the next element's address, where the loop follows a chain.
llvm::LoadInst *chainLink(llvm::Loop &loop, FunctionAnalyses &analyses);

inline bool isChain(llvm::Loop &loop, FunctionAnalyses &analyses) { return chainLink(loop, analyses) != nullptr; }

LoopDecision decideChain(llvm::Loop &loop, FunctionAnalyses &analyses);

} // namespace hinterland

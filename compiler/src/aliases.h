// What an instruction does, in any iteration of a loop, with what another iteration has at a place.
//
// Sizes say how much one iteration touches, so they are left away. A scope of aliases that is declared in the loop (an inlined function's restrict
// or &mut) tells what is apart within an iteration; it says nothing of two.
#pragma once

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/LoopInfo.h"

namespace hinterland {

class LoopAliases {
public:
  LoopAliases(const llvm::Loop &loop, llvm::AAResults &aliases);

  llvm::ModRefInfo of(llvm::Instruction &instruction, const llvm::MemoryLocation &place);

private:
  llvm::MemoryLocation ofAnyIteration(const llvm::MemoryLocation &place) const;

  llvm::BatchAAResults aliases_;
  llvm::SmallPtrSet<const llvm::Metadata *, 4> scopes_; // declared in the loop
};

} // namespace hinterland

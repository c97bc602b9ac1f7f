#include "aliases.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace hinterland {

LoopAliases::LoopAliases(const Loop &loop, AAResults &aliases) : aliases_(aliases) {
  aliases_.enableCrossIterationMode();
  for (BasicBlock *block : loop.blocks())
    for (Instruction &instruction : *block)
      if (auto *declared = dyn_cast<NoAliasScopeDeclInst>(&instruction))
        for (const MDOperand &scope : declared->getScopeList()->operands()) scopes_.insert(scope.get());
}

MemoryLocation LoopAliases::ofAnyIteration(const MemoryLocation &place) const {
  MemoryLocation any = place.getWithNewSize(LocationSize::beforeOrAfterPointer());
  // Of a list none may be left out: what is apart is apart from all of it.
  auto holds = [&](const MDNode *list) { return !list || none_of(list->operands(), [&](const MDOperand &scope) { return scopes_.contains(scope.get()); }); };
  if (!holds(any.AATags.Scope)) any.AATags.Scope = nullptr;
  if (!holds(any.AATags.NoAlias)) any.AATags.NoAlias = nullptr;
  return any;
}

ModRefInfo LoopAliases::of(Instruction &instruction, const MemoryLocation &place) {
  if (!instruction.mayReadOrWriteMemory() || instruction.isDebugOrPseudoInst() || instruction.isLifetimeStartOrEnd()) return ModRefInfo::NoModRef;
  auto own = MemoryLocation::getOrNone(&instruction);
  if (!own) return aliases_.getModRefInfo(&instruction, ofAnyIteration(place));
  if (aliases_.isNoAlias(ofAnyIteration(*own), ofAnyIteration(place))) return ModRefInfo::NoModRef;
  return (instruction.mayReadFromMemory() ? ModRefInfo::Ref : ModRefInfo::NoModRef) | (instruction.mayWriteToMemory() ? ModRefInfo::Mod : ModRefInfo::NoModRef);
}

} // namespace hinterland

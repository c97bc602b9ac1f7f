#include "overwriting.h"
#include "aliases.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/Analysis/ValueTracking.h"

using namespace llvm;

namespace hinterland {

// Bytes of an iteration's part that are stored, by `store`: from where to where. None: by something else.
static std::optional<std::pair<int64_t, int64_t>> stored(const StoreInst &store, const Access &access, ScalarEvolution &evolution) {
  const DataLayout &layout = store.getDataLayout();
  Type *type = store.getValueOperand()->getType();
  if (type->isScalableTy() || layout.getTypeStoreSizeInBits(type) != layout.getTypeSizeInBits(type)) return std::nullopt;
  const SCEV *address = evolution.getSCEV(const_cast<Value *>(store.getPointerOperand()));
  if (evolution.getPointerBase(address) != evolution.getPointerBase(access.address)) return std::nullopt;
  auto *offset = dyn_cast<SCEVConstant>(evolution.getMinusSCEV(address, access.address));
  if (!offset || offset->getAPInt().getSignificantBits() > 32) return std::nullopt;
  int64_t from = offset->getAPInt().getSExtValue();
  return std::pair(from, from + int64_t(layout.getTypeStoreSize(type).getFixedValue()));
}

// Whether the parts cover all bytes up to `end`.
static bool cover(SmallVectorImpl<std::pair<int64_t, int64_t>> &parts, int64_t end) {
  sort(parts);
  int64_t covered = 0;
  for (auto [from, to] : parts)
    if (from <= covered) covered = std::max(covered, to);
  return covered >= end;
}

// Why the promise cannot be made; empty: each iteration stores all bytes of its part, and nothing else looks at the object meanwhile.
static std::string readWhy(const Access &access, Loop &loop, FunctionAnalyses &analyses) {
  bool steps = access.pattern == Pattern::Sequential || access.pattern == Pattern::Strided;
  if (!steps || access.step <= 0 || !loop.isInnermost()) return "it is not written from its beginning to its end";
  if (!analyses.own.contains(access.object)) return "others may see it";
  if (isLeft(loop, analyses.evolution)) return "the loop can be left in the middle of an iteration";
  LoopAliases aliases(loop, analyses.aliases);
  MemoryLocation object = MemoryLocation::getBeforeOrAfter(access.object);
  SmallVector<std::pair<int64_t, int64_t>, 4> parts;
  for (BasicBlock *block : loop.blocks())
    for (Instruction &instruction : *block) {
      if (!isGuaranteedToTransferExecutionToSuccessor(&instruction) || instruction.isVolatile() || instruction.isAtomic())
        return "an iteration may not come to its end";
      auto *store = dyn_cast<StoreInst>(&instruction);
      bool always = analyses.dominators.dominates(block, loop.getLoopLatch());
      if (auto part = store && always ? stored(*store, access, analyses.evolution) : std::nullopt) {
        parts.push_back(*part);
        continue;
      }
      if (isModOrRefSet(aliases.of(instruction, object))) return "the loop may use it otherwise";
    }
  return cover(parts, access.step) ? "" : "some bytes of it are not written";
}

void decideOverwriting(Access &access, Loop &loop, FunctionAnalyses &analyses) {
  if (!access.writes) return;
  access.read = readWhy(access, loop, analyses);
  access.overwrites = access.read.empty();
}

} // namespace hinterland

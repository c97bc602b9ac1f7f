#include "chain.h"
#include "llvm/Analysis/ValueTracking.h"

using namespace llvm;

namespace hinterland {

LoadInst *chainLink(Loop &loop, FunctionAnalyses &analyses) {
  if (!loop.isInnermost() || !loop.isLoopSimplifyForm() || !loop.isSafeToClone()) return nullptr;
  if (!isa<SCEVCouldNotCompute>(analyses.evolution.getBackedgeTakenCount(&loop))) return nullptr;
  for (PHINode &phi : loop.getHeader()->phis()) {
    if (!phi.getType()->isPointerTy()) continue;
    auto *link = dyn_cast<LoadInst>(phi.getIncomingValueForBlock(loop.getLoopLatch()));
    if (link && link->isSimple() && loop.contains(link) && link->getPointerOperand()->stripInBoundsConstantOffsets() == &phi) return link;
  }
  return nullptr;
}

LoopDecision decideChain(Loop &loop, FunctionAnalyses &analyses) {
  LoopDecision decision;
  decision.loop = &loop;
  LoadInst *link = chainLink(loop, analyses);
  const DataLayout &layout = link->getDataLayout();
  auto *element = link->getPointerOperand()->stripInBoundsConstantOffsets();
  // The bytes of an element that the loop touches, at least its link.
  uint64_t bytes = 0;
  for (BasicBlock *block : loop.blocks())
    for (Instruction &instruction : *block) {
      const Value *pointer = getLoadStorePointerOperand(&instruction);
      if (!pointer) continue;
      int64_t offset = 0;
      if (GetPointerBaseWithConstantOffset(pointer, offset, layout) != element || offset < 0) continue;
      bytes = std::max(bytes, offset + layout.getTypeStoreSize(getLoadStoreType(&instruction)).getKnownMinValue());
    }
  Access access;
  access.pattern = Pattern::Chain;
  access.address = analyses.evolution.getSCEV(link);
  access.bytes = std::min<uint64_t>(bytes, 4096);
  access.holder = &loop;
  access.at = link;
  access.object = element;
  access.kept = "its order is not known";
  decision.accesses.push_back(std::move(access));
  return decision;
}

} // namespace hinterland

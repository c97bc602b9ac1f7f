#include "remarks.h"
#include "llvm/IR/DebugInfoMetadata.h"

using namespace llvm;

namespace hinterland {

static constexpr char passName[] = "hinterland";

// The object as people know it: its name, where it has one.
static std::string objectName(const Access &access) {
  if (access.object && access.object->hasName()) return access.object->getName().str();
  if (auto *call = dyn_cast_or_null<CallBase>(access.object); call && call->getCalledFunction())
    return ("memory of " + call->getCalledFunction()->getName()).str();
  return access.object && isa<LoadInst>(access.object) ? "what a loaded pointer leads to" : "memory";
}

static std::string eviction(const Access &access) {
  switch (access.evict) {
  case Eviction::Now: return "evicted behind";
  case Eviction::Soon: return "evicted behind when room is needed";
  case Eviction::Never: return "not evicted: " + access.kept;
  }
  llvm_unreachable("every eviction has words");
}

static DebugLoc place(const Instruction &instruction, const Loop &loop) {
  return instruction.getDebugLoc() ? instruction.getDebugLoc() : loop.getStartLoc();
}

void show(const LoopDecision &decision, OptimizationRemarkEmitter &remarks) {
  const Loop &loop = *decision.loop;
  const BasicBlock *header = loop.getHeader();
  if (!decision.refused.empty()) {
    remarks.emit([&] {
      return OptimizationRemarkMissed(passName, "LoopNotHinted", loop.getStartLoc(), header)
             << "loop is not hinted: " << ore::NV("Reason", decision.refused);
    });
  } else {
    for (const Access &access : decision.accesses)
      remarks.emit([&] {
        OptimizationRemark remark(passName, "Fetch", place(*access.at, loop), header);
        remark << ore::NV("Object", objectName(access)) << (access.overwrites ? " is overwritten, and not fetched: " : " is fetched ahead: ")
               << ore::NV("Pattern", name(access.pattern));
        if (access.step) remark << ", " << ore::NV("Step", access.step) << " bytes an iteration";
        if (!access.read.empty()) remark << "; fetched although it is written: " << ore::NV("Read", access.read);
        return remark << "; " << ore::NV("Eviction", eviction(access));
      });
  }
  for (const Refusal &refusal : decision.refusals)
    remarks.emit([&] {
      return OptimizationRemarkMissed(passName, "NotFetched", place(*refusal.at, loop), header)
             << "access is not fetched ahead: " << ore::NV("Reason", refusal.why);
    });
}

void showFused(const Function &function, size_t loops, OptimizationRemarkEmitter &remarks) {
  remarks.emit([&] {
    return OptimizationRemark(passName, "Fused", &function) << "loops that are fused with those before them: " << ore::NV("Loops", unsigned(loops));
  });
}

} // namespace hinterland

#include "eviction.h"
#include "aliases.h"
#include "llvm/Analysis/MemoryBuiltins.h"
#include "llvm/Analysis/MemoryLocation.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/DebugInfoMetadata.h"

using namespace llvm;

namespace hinterland {

// Whether an instruction may use an object: not its release, which looks at no content.
static bool uses(Instruction &instruction, const MemoryLocation &object, LoopAliases &aliases, const TargetLibraryInfo &library) {
  auto *call = dyn_cast<CallBase>(&instruction);
  return !(call && getFreedOperand(call, &library)) && isModOrRefSet(aliases.of(instruction, object));
}

// Whether an instruction is part of the same walk: an access of the loop that went into `access`.
static bool walks(Instruction &instruction, const Access &access, ScalarEvolution &evolution) {
  const Value *pointer = getLoadStorePointerOperand(&instruction);
  if (!pointer) return false;
  const SCEV *address = evolution.getSCEV(const_cast<Value *>(pointer));
  if (evolution.getPointerBase(address) != evolution.getPointerBase(access.address)) return false;
  auto *offset = dyn_cast<SCEVConstant>(evolution.getMinusSCEV(address, access.address));
  return offset && offset->getAPInt().ult(access.bytes);
}

// Why the object may be used again; empty: the loop's access is the last.
static std::string usedAgain(const Access &access, Loop &loop, FunctionAnalyses &analyses) {
  LoopAliases aliases(loop, analyses.aliases);
  MemoryLocation object = MemoryLocation::getBeforeOrAfter(access.object);
  for (BasicBlock *block : loop.blocks())
    for (Instruction &instruction : *block)
      if (!walks(instruction, access, analyses.evolution) && uses(instruction, object, aliases, analyses.library))
        return "the loop may use it elsewhere";
  // What can be reached from the loop's ends; the loop itself is among it where a loop around it begins it anew.
  SmallVector<BasicBlock *, 32> pending;
  loop.getUniqueExitBlocks(pending);
  SmallPtrSet<BasicBlock *, 32> seen;
  while (!pending.empty()) {
    BasicBlock *block = pending.pop_back_val();
    if (!seen.insert(block).second) continue;
    if (loop.contains(block)) return "a loop around this one may walk it again";
    for (Instruction &instruction : *block)
      if (uses(instruction, object, aliases, analyses.library)) return "it may be used after the loop";
    append_range(pending, successors(block));
  }
  return "";
}

// Not below 0 where each iteration's range begins where the one before ends, or behind it: what is left behind was walked, and comes no more.
// Null: that cannot be told before the loop runs.
static const SCEV *apart(const Access &access, const Loop &loop, ScalarEvolution &evolution) {
  if (access.end) return nullptr;
  Type *number = Type::getInt64Ty(evolution.getContext());
  const SCEV *begin = access.address, *length = evolution.getConstant(number, access.bytes);
  SmallVector<const SCEV *, 4> all; // of which none is below 0
  auto *inner = dyn_cast<SCEVAddRecExpr>(begin);
  for (; inner && inner->getLoop() != &loop; inner = dyn_cast<SCEVAddRecExpr>(begin)) {
    if (!inner->isAffine()) return nullptr;
    const SCEV *step = evolution.getNoopOrSignExtend(inner->getStepRecurrence(evolution), number);
    const SCEV *taken = evolution.getTruncateOrZeroExtend(evolution.getBackedgeTakenCount(inner->getLoop()), number);
    length = evolution.getAddExpr(length, evolution.getMulExpr(step, taken));
    all.push_back(step);
    begin = inner->getStart();
  }
  if (!inner || !inner->isAffine()) return nullptr;
  all.push_back(evolution.getMinusSCEV(evolution.getNoopOrSignExtend(inner->getStepRecurrence(evolution), number), length));
  if (any_of(all, [&](const SCEV *one) { return evolution.isKnownNegative(one); })) return nullptr;
  erase_if(all, [&](const SCEV *one) { return evolution.isKnownNonNegative(one); });
  const SCEV *least = all.empty() ? evolution.getZero(number) : evolution.getSMinExpr(all);
  SCEVExpander expander(evolution, "hinterland");
  bool isKnown = evolution.isLoopInvariant(least, &loop) && expander.isSafeToExpandAt(least, loop.getLoopPreheader()->getTerminator());
  return isKnown ? least : nullptr;
}

// What the plan says of the place where the object is allocated.
static std::optional<Eviction> ofSite(const Value *object, const Plan &plan) {
  auto *call = dyn_cast<CallBase>(object);
  const DILocation *place = call ? call->getDebugLoc().get() : nullptr;
  for (; place; place = place->getInlinedAt())
    for (const SitePlan &site : plan.sites)
      if (site.evict && names(site, place, *call->getFunction())) return site.evict;
  return std::nullopt;
}

std::optional<Eviction> plannedEviction(const Value *object, const LoopWish &wish, const Plan &plan) {
  std::optional<Eviction> said = ofSite(object, plan);
  return said ? said : wish.evict;
}

void decideEviction(Access &access, const LoopDecision &decision, const LoopWish &wish, const Plan &plan, FunctionAnalyses &analyses) {
  auto keep = [&](const Twine &why) { access.kept = why.str(); };
  if (access.pattern == Pattern::Gather) return keep("its order is not known");
  if (access.pattern != Pattern::Nest && access.step < 0) return keep("it is walked backwards");
  std::optional<Eviction> wanted = plannedEviction(access.object, wish, plan);
  if (wanted == Eviction::Never) return keep("the plan says so");
  // What leaves last does so while it is used: behind its last use it may go.
  if (wanted && wanted != Eviction::Last) { // people know what aliases cannot tell
    access.evict = *wanted;
    access.wanted = true;
    return;
  }
  if (!isIdentifiedObject(access.object) && !isa<Argument>(access.object)) return keep("which object it is cannot be told");
  if (auto why = usedAgain(access, *decision.loop, analyses); !why.empty()) return keep(why);
  const SCEV *between = access.pattern == Pattern::Nest ? apart(access, *decision.loop, analyses.evolution) : nullptr;
  if (access.pattern == Pattern::Nest && !between) return keep("its ranges may come again");
  if (!analyses.own.contains(access.object)) return keep("others may use it, and no plan says that it is walked once");
  access.evict = Eviction::Now;
  if (between && !between->isZero()) access.apart = between;
}

} // namespace hinterland

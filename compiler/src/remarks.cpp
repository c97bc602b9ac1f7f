#include "remarks.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/InstIterator.h"

using namespace llvm;

namespace hinterland {

static constexpr char passName[] = "hinterland";

// The object as people know it: its name, where it has one.
static std::string objectName(const Value *object) {
  if (object && object->hasName()) return object->getName().str();
  if (auto *call = dyn_cast_or_null<CallBase>(object); call && call->getCalledFunction())
    return ("memory of " + call->getCalledFunction()->getName()).str();
  return object && isa<LoadInst>(object) ? "what a loaded pointer leads to" : "memory";
}

static std::string eviction(const Access &access) {
  switch (access.evict) {
  case Eviction::Now: return access.apart ? "evicted behind where its ranges do not overlap" : "evicted behind";
  case Eviction::Soon: return "evicted behind when room is needed";
  case Eviction::Last: // which is said of the loop that keeps it
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
        remark << ore::NV("Object", objectName(access.object)) << (access.overwrites ? " is overwritten, and not fetched: " : " is fetched ahead: ")
               << ore::NV("Pattern", name(access.pattern));
        if (access.step) remark << ", " << ore::NV("Step", access.step) << " bytes an iteration";
        if (auto *call = dyn_cast<CallBase>(access.at)) remark << ", for calls of " << ore::NV("Callee", call->getCalledFunction());
        if (!access.paged.empty()) remark << "; its indices are read ahead to the end of their page, because the loop can be left";
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

void show(const KeepDecision &decision, OptimizationRemarkEmitter &remarks) {
  for (auto &[loop, objects] : decision.loops)
    for (const Kept &kept : objects)
      remarks.emit([&] {
        return OptimizationRemark(passName, "Keep", place(*kept.at, *loop), loop->getHeader())
               << ore::NV("Object", objectName(kept.object)) << " is kept while the loop of line " << ore::NV("Line", loop->getStartLoc() ? loop->getStartLoc().getLine() : 0)
               << " runs: " << ore::NV("Reason", kept.isScattered ? "in an order that is not known" : "each iteration walks it again");
      });
  for (const NotKept &refusal : decision.refusals)
    remarks.emit([&] {
      return OptimizationRemarkMissed(passName, "NotKept", refusal.at)
             << ore::NV("Object", objectName(refusal.object)) << " is not kept: " << ore::NV("Reason", refusal.why);
    });
}

void showMissing(const Plan &plan, Module &module, function_ref<OptimizationRemarkEmitter &(Function &)> remarks, function_ref<LoopInfo &(Function &)> loops) {
  if (!OptimizationRemarkEmitter::allowExtraAnalysis(module.getContext(), passName)) return;
  SmallPtrSet<const FunctionPlan *, 16> functions;
  SmallPtrSet<const LoopPlan *, 16> met;
  SmallPtrSet<const SitePlan *, 16> sites;
  SmallPtrSet<const DISubprogram *, 16> seen;
  SmallDenseSet<std::pair<const DISubprogram *, unsigned>, 32> lines;
  Function *first = nullptr;
  auto meet = [&](const DISubprogram *program, StringRef linkage) {
    for (const FunctionPlan &function : plan.functions)
      if (names(function, program, linkage)) functions.insert(&function);
  };
  auto meetLoop = [&](const DISubprogram *program, StringRef linkage, unsigned line) {
    if (const FunctionPlan *planned = planOf(plan, program, linkage))
      for (const LoopPlan &one : planned->loops)
        if (one.line == line) met.insert(&one);
  };
  for (Function &function : module) {
    if (function.isDeclaration()) continue;
    if (!first) first = &function;
    meet(function.getSubprogram(), function.getName());
    for (Loop *loop : loops(function).getLoopsInPreorder())
      findPlace(*loop, [&](const DISubprogram *program, StringRef linkage, unsigned line) {
        meetLoop(program, linkage, line);
        return false;
      });
    for (Instruction &instruction : instructions(function))
      for (const DILocation *place = instruction.getDebugLoc().get(); place; place = place->getInlinedAt()) {
        const DISubprogram *program = place->getScope()->getSubprogram();
        StringRef linkage = program->getLinkageName().empty() ? program->getName() : program->getLinkageName();
        if (seen.insert(program).second) meet(program, linkage);
        // Of a loop that was unrolled or became a call what it did is left.
        if (lines.insert({program, place->getLine()}).second) meetLoop(program, linkage, place->getLine());
        if (!isa<CallBase>(instruction)) continue;
        for (const SitePlan &site : plan.sites)
          if (!sites.contains(&site) && names(site, place, function)) sites.insert(&site);
      }
  }
  if (!first) return;
  auto show = [&](const Twine &what, StringRef name) {
    remarks(*first).emit([&] {
      return OptimizationRemarkMissed(passName, "NotHere", DiagnosticLocation(first->getSubprogram()), &first->getEntryBlock())
             << "the plan's " << what.str() << " is not in this file: " << ore::NV("Name", name);
    });
  };
  for (const FunctionPlan &function : plan.functions)
    if (!functions.contains(&function)) show("function", function.name);
    else
      for (const LoopPlan &one : function.loops)
        if (!met.contains(&one)) show("loop", function.name + ":" + std::to_string(one.line));
  for (const SitePlan &site : plan.sites)
    if (!sites.contains(&site)) show("site", site.function + (site.line ? ":" + std::to_string(site.line) : ""));
}

void showFused(const Function &function, size_t loops, OptimizationRemarkEmitter &remarks) {
  remarks.emit([&] {
    return OptimizationRemark(passName, "Fused", &function) << "loops that are fused with those before them: " << ore::NV("Loops", unsigned(loops));
  });
}

} // namespace hinterland

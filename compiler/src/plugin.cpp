// The compiler's part of Hinterland, as a plugin of LLVM 22: `clang -fpass-plugin=hinterland-llvm22.so`, `ld.lld --load-pass-plugin=…`.
//
// It runs where the vectoriser is about to: loops have the shape that scalar evolution understands, calls are inlined, and both versions of a
// hinted loop are vectorised afterwards. In full link-time optimisation it runs at the end of it.
#include "analysis.h"
#include "gather.h"
#include "keeping.h"
#include "remarks.h"
#include "transform.h"
#include "llvm/Analysis/AliasAnalysis.h"
#include "llvm/Analysis/CaptureTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Plugins/PassPlugin.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Transforms/Scalar/LoopFuse.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"

using namespace llvm;

namespace hinterland {

namespace {

// Whether a loop calls functions of other files, which a link that optimises may inline.
bool callsElsewhere(const Loop &loop, const TargetLibraryInfo &library) {
  for (const BasicBlock *block : loop.blocks())
    for (const Instruction &instruction : *block) {
      auto *call = dyn_cast<CallBase>(&instruction);
      const Function *function = call ? call->getCalledFunction() : nullptr;
      LibFunc known;
      if (function && function->isDeclaration() && !function->isIntrinsic() && !library.getLibFunc(*function, known)) return true;
    }
  return false;
}

// The outermost loops that are worth it: what a loop inside walks again in each iteration is better hinted there.
void choose(Loop &loop, const Plan &plan, bool isBeforeLink, FunctionAnalyses &analyses, OptimizationRemarkEmitter &remarks, SmallPtrSetImpl<BasicBlock *> &seen,
            std::optional<LoopDecision> &chosen) {
  if (chosen || seen.contains(loop.getHeader()) || isDone(loop)) return;
  // What is around a loop that has its hints has them there.
  if (any_of(loop.getLoopsInPreorder(), [](const Loop *inner) { return isDone(*inner); })) {
    for (Loop *inner : loop) choose(*inner, plan, isBeforeLink, analyses, remarks, seen, chosen);
    return;
  }
  LoopDecision decision = decide(loop, wish(plan, loop), plan, analyses);
  bool inside = !loop.isInnermost();
  if (decision.refused.empty() && decision.rewalks && inside) decision.refused = "loops inside walk something again in each iteration: they are hinted";
  if (decision.refused.empty() && isBeforeLink && callsElsewhere(loop, analyses.library)) decision.refused = "the link may inline what it calls: it is hinted then, if lld loads the plugin";
  show(decision, remarks);
  seen.insert(loop.getHeader());
  if (decision.refused.empty()) {
    chosen = std::move(decision);
    return;
  }
  for (Loop *inner : loop) choose(*inner, plan, isBeforeLink, analyses, remarks, seen, chosen);
}

class HinterlandPass : public PassInfoMixin<HinterlandPass> {
public:
  explicit HinterlandPass(bool isBeforeLink) : isBeforeLink_(isBeforeLink) {}

  PreservedAnalyses run(Module &module, ModuleAnalysisManager &manager);
  static bool isRequired() { return false; }

private:
  bool run(Function &function, const Plan &plan, Interface &interface, Summaries &summaries, FunctionAnalysisManager &manager);

  bool isBeforeLink_; // which optimises
};

PreservedAnalyses HinterlandPass::run(Module &module, ModuleAnalysisManager &manager) {
  const Triple &target = module.getTargetTriple();
  if (!target.isOSLinux() || !target.isArch64Bit()) return PreservedAnalyses::all();
  auto plan = Plan::fromEnvironment();
  if (!plan) {
    module.getContext().emitError("hinterland: " + toString(plan.takeError()));
    return PreservedAnalyses::all();
  }
  Interface interface(module, *plan);
  auto &functions = manager.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
  SmallVector<Function *> all;
  for (Function &function : module) all.push_back(&function);
  if (plan->given)
    showMissing(
        *plan, module, [&](Function &function) -> OptimizationRemarkEmitter & { return functions.getResult<OptimizationRemarkEmitterAnalysis>(function); },
        [&](Function &function) -> LoopInfo & { return functions.getResult<LoopAnalysis>(function); });
  bool changed = plan->given;
  Summaries summaries(module, functions);
  for (Function *function : all) changed |= run(*function, *plan, interface, summaries, functions);
  return changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
}

// LLVM's fusion is to ask dependence analysis alone. Scalar evolution, which it would ask too, compares where two accesses begin: not how many
// bytes they have, nor whether an address comes again. False: this LLVM has no such choice.
bool asksDependences() {
  static const bool isSo = [] {
    cl::Option *choice = cl::getRegisteredOptions().lookup("loop-fusion-dependence-analysis");
    return choice && (choice->getNumOccurrences() > 0 || !choice->addOccurrence(0, choice->ArgStr, "da"));
  }();
  return isSo;
}

// LLVM's own fusion of loops that follow one another over as many iterations, where the plan names the function: what both walk comes once.
bool fuse(Function &function, const Plan &plan, FunctionAnalysisManager &manager) {
  if (!isPlanned(plan, function) || !asksDependences()) return false;
  auto loops = [&] { return manager.getResult<LoopAnalysis>(function).getLoopsInPreorder().size(); };
  auto run = [&](auto pass) {
    PreservedAnalyses kept = pass.run(function, manager);
    manager.invalidate(function, kept);
    return !kept.areAllPreserved();
  };
  size_t before = loops();
  if (before < 2 || !run(LoopFusePass())) return false;
  run(LoopSimplifyPass());
  run(LCSSAPass());
  if (size_t after = loops(); after < before) showFused(function, before - after, manager.getResult<OptimizationRemarkEmitterAnalysis>(function));
  return true;
}

// Keeps what the plan wants kept, around loops that get their hints afterwards.
bool keepAround(Function &function, const Plan &plan, Interface &interface, FunctionAnalyses analyses, FunctionAnalysisManager &manager) {
  KeepDecision decision = decideKeeping(function, plan, analyses);
  show(decision, manager.getResult<OptimizationRemarkEmitterAnalysis>(function));
  if (decision.loops.empty()) return false;
  analyses.summaries.of(function); // which is that of the function as it was written
  keep(decision, interface, analyses);
  manager.invalidate(function, PreservedAnalyses::none());
  for (bool isAgain : {false, true}) {
    PreservedAnalyses kept = isAgain ? LCSSAPass().run(function, manager) : LoopSimplifyPass().run(function, manager);
    manager.invalidate(function, kept);
  }
  return true;
}

bool HinterlandPass::run(Function &function, const Plan &plan, Interface &interface, Summaries &summaries, FunctionAnalysisManager &manager) {
  if (function.isDeclaration() || function.hasAvailableExternallyLinkage() || function.hasOptNone() || function.hasOptSize() ||
      function.hasFnAttribute(Attribute::Naked) || function.isPresplitCoroutine() || isGather(function))
    return false;
  SmallPtrSet<const Value *, 8> own;
  // A function that calls setjmp may look at its objects from within any instruction: a signal's handler goes back there.
  bool returnsTwice = function.callsFunctionThatReturnsTwice();
  for (Instruction &instruction : instructions(function))
    if (!returnsTwice && isNoAliasCall(&instruction) && !PointerMayBeCaptured(&instruction, /*ReturnCaptures=*/true)) own.insert(&instruction);
  SmallPtrSet<BasicBlock *, 16> seen;
  bool changed = fuse(function, plan, manager);
  auto analyse = [&] {
    return FunctionAnalyses{manager.getResult<DominatorTreeAnalysis>(function), manager.getResult<LoopAnalysis>(function),
                            manager.getResult<ScalarEvolutionAnalysis>(function), manager.getResult<AAManager>(function),
                            manager.getResult<TargetLibraryAnalysis>(function), manager.getResult<AssumptionAnalysis>(function), summaries, own};
  };
  changed |= keepAround(function, plan, interface, analyse(), manager);
  for (;;) {
    FunctionAnalyses analyses = analyse();
    auto &remarks = manager.getResult<OptimizationRemarkEmitterAnalysis>(function);
    std::optional<LoopDecision> chosen;
    for (Loop *loop : analyses.loops) choose(*loop, plan, isBeforeLink_, analyses, remarks, seen, chosen);
    if (!chosen) return changed;
    summaries.of(function); // which is that of the function as it was written
    hint(*chosen, interface, analyses, seen);
    changed = true;
    manager.invalidate(function, PreservedAnalyses::none());
  }
}

void add(ModulePassManager &passes, ThinOrFullLTOPhase phase) {
  FunctionPassManager shape;
  shape.addPass(LoopSimplifyPass());
  shape.addPass(LCSSAPass());
  passes.addPass(createModuleToFunctionPassAdaptor(std::move(shape)));
  passes.addPass(HinterlandPass(phase == ThinOrFullLTOPhase::ThinLTOPreLink || phase == ThinOrFullLTOPhase::FullLTOPreLink));
}

} // namespace

} // namespace hinterland

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "hinterland", "1", [](PassBuilder &builder) {
            builder.registerOptimizerEarlyEPCallback([](ModulePassManager &passes, OptimizationLevel level, ThinOrFullLTOPhase phase) {
              if (level.getSpeedupLevel() >= 2) hinterland::add(passes, phase);
            });
            builder.registerFullLinkTimeOptimizationLastEPCallback([](ModulePassManager &passes, OptimizationLevel level) {
              if (level.getSpeedupLevel() >= 2) hinterland::add(passes, ThinOrFullLTOPhase::FullLTOPostLink);
            });
            builder.registerPipelineParsingCallback([](StringRef name, ModulePassManager &passes, ArrayRef<PassBuilder::PipelineElement>) {
              if (name != "hinterland") return false;
              hinterland::add(passes, ThinOrFullLTOPhase::None);
              return true;
            });
          }};
}

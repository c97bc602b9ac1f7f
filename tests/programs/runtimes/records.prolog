% Strings among the clauses, visited and replaced in random order. usage: swipl records.prolog MEBIBYTES
:- initialization(main, main).
:- dynamic held/2.

record(I, Record) :-
    format(atom(One), "~|~`0t~d~9+", [I]), length(Parts, 28), maplist(=(One), Parts),
    atomic_list_concat(Parts, Atom), atom_string(Atom, Record).

main([Words]) :-
    atom_number(Words, MiB), Count is MiB * 1048576 // 440,
    forall(between(1, Count, I), (record(I, Record), assertz(held(I, Record)))),
    visit(1, 1, 0, Count, Sum), format("~d records, sum ~d~n", [Count, Sum]).

visit(24001, _, Sum, _, Sum) :- !.
visit(Visit, X0, Sum0, Count, Sum) :-
    X is (X0 * 1103515245 + 12345) /\ 0x7fffffff, At is (X >> 4) mod Count + 1, Place is X mod 252 + 1,
    held(At, Record), get_string_code(Place, Record, Code), Sum1 is (Sum0 * 31 + Code) /\ 0xffffffff,
    ( Visit mod 4 =:= 0 -> retract(held(At, _)), record(X, New), assertz(held(At, New)) ; true ),
    Next is Visit + 1, visit(Next, X, Sum1, Count, Sum).

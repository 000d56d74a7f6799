"""Flow files, good and bad: what both the published schema and the loader take, and what neither does."""

GOOD = {
    "the least": "steps: [{id: a, run: make}]",
    "all of it": """\
name: build
description: Builds it and has it looked at.
inputs:
  branch: main
  count: 3
  level: {default: high, description: How much.}
  who:
timeouts: {flow: 30m, step: 900000, llm_call: "180000", tool: 5m}
steps:
  - id: plan
    agent: ada
    prompt: "Plan {{ inputs.branch }} for {{ inputs.who }}."
    retry: 1
  - id: build
    needs: plan
    run: [make, "-j{{ inputs.count }}", 3, true]
    env: {LEVEL: "{{ inputs.level }}", EMPTY: , N: 4}
    outputs: {wheel: dist/app.whl, log: build.log}
    retry: {retries: 1, backoff: 2s, jitter: 0.5}
    audit: make check
  - id: test
    needs: [build]
    run: pytest --os {{ matrix.os }} {{ steps.build.outputs.wheel }}
    matrix: {os: [linux, mac], python: ["3.11", "3.12"], n: [1, 2.5, true]}
    timeout_override: 1200000
    audit: {run: [true]}
  - id: report
    needs: [test, plan]
    python: jobs.report:write
    inputs: {limit: 5, deep: {list: ["{{ steps.plan.stdout }}", 1]}, run: "{{ run.id }}"}
    outputs: [report.md]
    audit: {agent: bob, prompt: Is it right?}
  - id: 7
    run: echo {{{{ {{ steps.report.result.0.name }} }}
    needs: report
    outputs: one.txt
""",
    "null mappings": "inputs:\ntimeouts:\nsteps: [{id: a, run: x, env: , needs: }]",
    "a function without arguments": "steps: [{id: a, python: 'os:getcwd', inputs: }]",
}

SHAPELESS = {
    "an unknown key": "stepz: 1\nsteps: [{id: a, run: x}]",
    "an unknown key of a step": "steps: [{id: a, run: x, need: [b]}]",
    "no steps": "steps: []",
    "steps are no list": "steps: {a: 1}",
    "no id": "steps: [{run: x}]",
    "an id that names no file": "steps: [{id: a/b, run: x}]",
    "nothing to do": "steps: [{id: a}]",
    "two things to do": "steps: [{id: a, run: x, python: 'a:b'}]",
    "a prompt for nobody": "steps: [{id: a, run: x, prompt: y}]",
    "an agent without a prompt": "steps: [{id: a, agent: x}]",
    "an empty prompt": "steps: [{id: a, agent: x, prompt: ' '}]",
    "an empty command": "steps: [{id: a, run: []}]",
    "a blank command": "steps: [{id: a, run: ' '}]",
    "a command that is a number": "steps: [{id: a, run: 5}]",
    "a command of lists": "steps: [{id: a, run: [[x]]}]",
    "no function": "steps: [{id: a, python: os.getcwd}]",
    "arguments for a command": "steps: [{id: a, run: x, inputs: {a: 1}}]",
    "a variable of ours": "steps: [{id: a, run: x, env: {ALLSWELL_TASK: t}}]",
    "a variable that cannot be": "steps: [{id: a, run: x, env: {a-b: t}}]",
    "a variable that is a list": "steps: [{id: a, run: x, env: {A: [t]}}]",
    "an output above": "steps: [{id: a, run: x, outputs: [../a]}]",
    "an output far above": "steps: [{id: a, run: x, outputs: {o: a/../../b}}]",
    "an output at the root": "steps: [{id: a, run: x, outputs: [/etc/passwd]}]",
    "an output at home": "steps: [{id: a, run: x, outputs: ['~/x']}]",
    "an output of git's": "steps: [{id: a, run: x, outputs: [.git/config]}]",
    "an output of ours": "steps: [{id: a, run: x, outputs: [a/.allswell/x]}]",
    "the same output twice": "steps: [{id: a, run: x, outputs: [a, a]}]",
    "an output that is a number": "steps: [{id: a, run: x, outputs: [5]}]",
    "a limit that is none": "timeouts: {step: soon}\nsteps: [{id: a, run: x}]",
    "a limit of nothing": "steps: [{id: a, run: x, timeout_override: 0}]",
    "an unknown scope": "timeouts: {stpe: 5m}\nsteps: [{id: a, run: x}]",
    "retries that are words": "steps: [{id: a, run: x, retry: soon}]",
    "an unknown figure": "steps: [{id: a, run: x, retry: {pause: 5}}]",
    "an audit that does nothing": "steps: [{id: a, run: x, audit: {}}]",
    "an audit by a function": "steps: [{id: a, run: x, audit: {python: 'a:b'}}]",
    "an audit that does two things": "steps: [{id: a, run: x, audit: {run: x, agent: y, prompt: z}}]",
    "an empty matrix": "steps: [{id: a, run: x, matrix: {}}]",
    "an axis without values": "steps: [{id: a, run: x, matrix: {a: []}}]",
    "an axis of lists": "steps: [{id: a, run: x, matrix: {a: [[1]]}}]",
    "an axis with a value twice": "steps: [{id: a, run: x, matrix: {a: [b, b]}}]",
    "an axis that cannot be named": "steps: [{id: a, run: x, matrix: {a-b: [b]}}]",
    "an input of lists": "inputs: {a: [1]}\nsteps: [{id: a, run: x}]",
    "an input with an unknown key": "inputs: {a: {defualt: 1}}\nsteps: [{id: a, run: x}]",
    "an input that cannot be named": "inputs: {a b: 1}\nsteps: [{id: a, run: x}]",
    "a name that is a path": "name: a/b\nsteps: [{id: a, run: x}]",
}

SENSELESS = {
    "a cycle": ("steps: [{id: a, run: x, needs: b}, {id: b, run: x, needs: c}, {id: c, run: x, needs: a}]",
                "f.yaml:1:9: dependency cycle detected: a -> b -> c -> a"),
    "a loop of one": ("steps: [{id: a, run: x, needs: a}]", "f.yaml:1:9: dependency cycle detected: a -> a"),
    "a missing step": ("steps: [{id: build, run: x}, {id: b, run: x, needs: [biuld]}]",
                       "f.yaml:1:54: Step 'b' needs 'biuld', and there is no such step. Did you mean 'build'?"),
    "two steps of one id": ("steps:\n- {id: a, run: x}\n- {id: a, run: y}",
                            "f.yaml:3:3: There are two steps 'a'; the first is on line 2. Rename one."),
    "above the hard limit": ("timeouts: {step: 20m}\nsteps: [{id: a, run: x}]",
                             "f.yaml:1:12: timeouts.step is above its hard limit"),
    "a misspelt key": ("steps: [{id: a, run: x, timeout_overide: 3m}]",
                       "f.yaml:1:25: 'timeout_overide' is nothing that a step has. Did you mean 'timeout_override'?"),
    "an unknown input": ("inputs: {branch: a}\nsteps: [{id: a, run: 'x {{ inputs.brnch }}'}]",
                         "f.yaml:2:22: steps.a.run: there is no input 'brnch'. Did you mean 'branch'?"),
    "an unknown axis": ("steps: [{id: a, run: 'x {{ matrix.os }}'}]",
                        "f.yaml:1:22: steps.a.run: its matrix has no axis 'os'. It has none."),
    "an unknown part of a run": ("steps: [{id: a, run: 'x {{ run.name }}'}]", "a run has no 'name'"),
    "the value of no step": ("steps: [{id: a, run: 'x {{ steps.b.stdout }}'}]", "there is no step 'b'"),
    "a value that is not needed": (
        "steps: [{id: a, run: x}, {id: b, run: 'x {{ steps.a.stdout }}'}]",
        "f.yaml:1:39: steps.b.run: it uses steps.a.stdout and does not need step 'a'. Add 'a' to its needs."),
    "a value that steps have not": ("steps: [{id: a, run: x}, {id: b, needs: a, run: 'x {{ steps.a.sdtout }}'}]",
                                    "a step gives no 'sdtout'. There are a.stdout, a.result, a.outputs, a.exit_code."),
    "an output that is not there": (
        "steps: [{id: a, run: x, outputs: {o: p}}, {id: b, needs: a, run: 'x {{ steps.a.outputs.p }}'}]",
        "step 'a' has no such output. There are o."),
    "the result of a command": ("steps: [{id: a, run: x}, {id: b, needs: a, run: 'x {{ steps.a.result }}'}]",
                                "step 'a' is a command, which returns nothing. Write {{ steps.a.stdout }}."),
    "the output of a function": ("steps: [{id: a, python: 'x:y'}, {id: b, needs: a, run: 'x {{ steps.a.stdout }}'}]",
                                 "is a function, which prints nothing here. Write {{ steps.a.result }}."),
    "braces that do not close": ("steps: [{id: a, run: 'x {{ inputs.a'}]", "{{ is not closed"),
    "braces of another language": ("steps: [{id: a, run: \"docker ps --format '{{.Names}}'\"}]",
                                   "{{.Names}} names no value; write such as {{ steps.ID.stdout }}, or {{{{"),
    "a value of no kind": ("steps: [{id: a, run: 'x {{ env.HOME }}'}]",
                           "there is no value 'env.HOME': values begin with inputs, matrix, steps, run"),
    "a value in an audit": ("steps: [{id: a, run: x, audit: {run: ['{{ inputs.a }}']}}]",
                            "f.yaml:1:39: steps.a.audit: there is no input 'a'. Declare it under `inputs:`."),
    "a line for a shell": ("steps: [{id: a, run: make && make install}]",
                           "only a shell knows; it would be handed to the program as a word. Ask for a shell: `run:"),
    "an open quote": ("steps: [{id: a, run: \"echo 'a\"}]", "cannot be split into words: No closing quotation"),
    "a matrix beyond all bounds": (
        "steps: [{id: a, run: x, matrix: {a: [" + ",".join(map(str, range(200))) + "], b: ["
        + ",".join(map(str, range(101))) + "]}}]",
        "steps.a.matrix has 20,200 members; a flow may come to 20,000 steps"),
    "too many steps in all": (
        "steps:\n" + "".join(f"- {{id: s{n}, run: x, matrix: {{a: [" + ",".join(map(str, range(200))) + "], b: ["
                             + ",".join(map(str, range(90))) + "]}}\n" for n in range(2)),
        "f.yaml:3:3: With step 's1' the flow comes to more than 20,000 steps."),
    "members that write one file": (
        "steps: [{id: a, run: x, matrix: {a: [1], b: [2]}, outputs: ['o-{{ matrix.a }}']}]",
        "several members of the matrix would write 'o-{{ matrix.a }}'. Name every axis in it, such as {{ matrix.b }}."),
    "a bomb": ("a: &a [x, x]\nb: &b [*a, *a]\nsteps: [*b]", "f.yaml:1:4: An anchor (&a) is not taken"),
    "a tab": ("steps:\n\t- id: a", "f.yaml:2:1: A tab indents this line, and YAML takes only spaces"),
    "a key twice": ("name: a\nname: b", "f.yaml:2:1: The key 'name' is given twice, first on line 1"),
    "no flow": ("- a", "This is not a flow"),
}  # fmt: skip
"""What only the loader can tell, and what it says first."""

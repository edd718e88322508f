"""What the tests of the documentation know of single pages: what they find, what is added, what is not run."""

from rudel.export.process import ENVIRONMENT

NOT_RUN = {
    ("install.md", "python3 -m venv .venv\n. .venv/bin/activate\npip install ."),
    (
        "lab.md",
        "sudo apt-get install debootstrap qemu-user-static\n"
        'sudo "$(command -v rudel)" lab up --nodes 2 --arch x86_64,arm64 --cpu 1',
    ),
    ("your-own-model.md", 'rudel.fit(model, x, y, epochs=20, on="raspi1,raspi2,raspi3,raspi4")'),
    (
        "recipes.md",
        "rudel hosts run raspi1,raspi2 -- .rudel/env/bin/python -m pip install torch==2.13.0\n"
        "KERAS_BACKEND=torch rudel train digits --on raspi1,raspi2",
    ),
    ("hosts.md", "rudel hosts run raspi1,raspi2 -- .rudel/env/bin/python -m pip install soundfile"),
    (
        "sine.md",
        "arduino-cli core install arduino:mbed_nano\n"
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 --library sine "
        "sine/examples/sine",
    ),
    (
        "micro.md",
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 on-board\n"
        'pip install "rudel[board]"\n'
        "rudel micro bench sine.tflite --target cortex-m4 --port /dev/ttyACM0",
    ),
    ("word.md", "git clone https://github.com/Jakobovski/free-spoken-digit-dataset"),
    (
        "word.md",
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 --library ears "
        "ears/examples/ears",
    ),
    (
        "word.md",
        "arduino-cli core install arduino:mbed_nano\n"
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 listener\n"
        "rudel data collect --class seven --speaker ada --out words --recordings 30",
    ),
    (
        "movement.md",
        "arduino-cli core install arduino:mbed_nano\n"
        "arduino-cli lib install Arduino_LSM9DS1\n"
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 sensor\n"
        "rudel data collect --class punch --out movements\n"
        "rudel data collect --class flex --out movements",
    ),
    (
        "movement.md",
        "arduino-cli compile --upload --fqbn arduino:mbed_nano:nano33ble --port /dev/ttyACM0 --library hand "
        "hand/examples/hand",
    ),
    ("signs.md", "git clone https://github.com/ardamavi/Sign-Language-Digits-Dataset"),
    ("mesh.md", "srun -n 2 rudel train digits --strategy mesh --epochs 2 --run runs/by-slurm"),
    ("mesh.md", "rudel train digits --on raspi1,raspi2,raspi3,raspi4 --strategy mesh --run runs/on-hosts"),
    ("watch.md", "ssh -L 8488:localhost:8488 desktop"),
    ("platforms.md", "wsl --install Debian\nsudo apt-get install git python3-venv"),
    (
        "platforms.md",
        "git archive HEAD | podman build --file Containerfile --target server --tag rudel-server -\n"
        "podman run --rm -p 127.0.0.1:8501:8501 -v ./runs/digits:/models/digits:ro rudel-server /models/digits",
    ),
    (
        "gpu.md",
        """nvidia-smi
python3 -m venv ~/rudel-env
. ~/rudel-env/bin/activate
pip install . "jax[cuda13]\"""",
    ),
    (
        "gpu.md",
        "rudel train images --data sign-records --precision mixed_bfloat16\n"
        "rudel predict runs/images Sign-Language-Digits-Dataset/Dataset/7/IMG_1125.JPG",
    ),
    ("gpu.md", "python benchmarks/gpu.py --json gpu.json"),
    ("laptop-and-gpu-box.md", "sudo apt-get install openssh-server python3\nnvidia-smi"),
    ("laptop-and-gpu-box.md", "ssh-keygen -t ed25519\nssh-copy-id you@192.168.1.20"),
    (
        "laptop-and-gpu-box.md",
        "rudel hosts run gpubox -- .rudel/env/bin/python -m pip install "
        "\"jax[cuda13]==$(python -c 'import jax; print(jax.__version__)')\"\n"
        "rudel hosts run gpubox -- .rudel/env/bin/rudel doctor",
    ),
    ("laptop-and-gpu-box.md", "ssh gpubox\ntmux\n.rudel/env/bin/rudel train mine.py --run runs/mine"),
    (
        "kubernetes.md",
        """git archive --add-file=versions.txt HEAD |
    docker build --file Containerfile --target worker -t registry.example.com/rudel:0.1.0 -
docker push registry.example.com/rudel:0.1.0
helm install --repo https://helm.dask.org --create-namespace -n dask-operator --generate-name dask-kubernetes-operator
kubectl apply -f rudel.yaml""",
    ),
    (
        "kubernetes.md",
        """kubectl wait --for=condition=Ready pod --timeout=5m \\
    --selector dask.org/cluster-name=rudel,dask.org/component=scheduler
kubectl port-forward service/rudel-scheduler 8786 &
rudel train digits --scheduler tcp://localhost:8786 --min-hosts 4 --run runs/on-kubernetes
kill %1
kubectl delete daskcluster rudel""",
    ),
    (
        "tpu.md",
        """gcloud compute tpus tpu-vm create rudel --zone=us-west4-a \\
    --accelerator-type=v5litepod-4 --version=v2-alpha-tpuv5-lite
gcloud compute tpus tpu-vm ssh rudel --zone=us-west4-a""",
    ),
    (
        "tpu.md",
        "git archive HEAD | gcloud compute tpus tpu-vm ssh rudel --zone=us-west4-a "
        "--command='mkdir rudel && tar -x -C rudel'",
    ),
    (
        "tpu.md",
        """sudo apt-get update && sudo apt-get install -y python3.11 python3.11-venv git
python3.11 -m venv ~/rudel-env
. ~/rudel-env/bin/activate
pip install . "jax[tpu]"
python -c "import jax; print(jax.devices())\"""",
    ),
    (
        "tpu.md",
        """git clone https://github.com/ardamavi/Sign-Language-Digits-Dataset
rudel data images Sign-Language-Digits-Dataset/Dataset --out sign-records
rudel train images --data sign-records --precision mixed_bfloat16 --strategy mesh --batch-size 128
rudel predict runs/images Sign-Language-Digits-Dataset/Dataset/7/IMG_1125.JPG""",
    ),
    (
        "tpu.md",
        """gcloud compute tpus tpu-vm scp --recurse rudel:runs/images runs/images --zone=us-west4-a
gcloud compute tpus tpu-vm delete rudel --zone=us-west4-a""",
    ),
    (
        "tpu.md",
        """gcloud compute tpus tpu-vm ssh rudel --zone=us-west4-a --worker=all --command="
    . ~/rudel-env/bin/activate
    rudel train images --data gs://bucket/sign-records --precision mixed_bfloat16 --strategy mesh --batch-size 512\"""",
    ),
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/rudel train"),
    (
        "README.md",
        "python3 -m venv .venv-dev && .venv-dev/bin/pip install -e '.[dev]' && .venv-dev/bin/python -m pytest",
    ),
}
"""The blocks that may say that they are not run."""

RASPIS = {"raspi1": 0.8, "raspi2": 0.8}
ON_HOSTS = {
    "README.md": RASPIS,
    "cluster.md": RASPIS,
    "hosts.md": RASPIS,
    "laptop-and-gpu-box.md": {"laptop": 0.8, "gpubox": 1.6},
    "plan.md": RASPIS,
    "strategies.md": RASPIS,
}
"""Pages that find hosts: what these are called there, and how many cores each has."""

OWN_LAB = {"lab.md"}
"""Pages that start a lab themselves."""

ON_SLURM = {"slurm.md"}
"""Pages that submit jobs."""

SLOW = {"cluster.md", "laptop-and-gpu-box.md", "plan.md"}
"""Pages that --slow runs: hosts.md and strategies.md do on hosts what these do, and in less time.

`tests/training/replicas/test_plan_on_workers.py` and `tests/cli/test_plan.py` show what plan.md does.
"""

SIGNS = "Sign-Language-Digits-Dataset"
"""A data set of photographs, and the folder that a clone of it is."""

ADDED: dict[str, dict[str, str]] = {
    "concepts.md": {"rudel train digits": "--set filters=4 --epochs 3"},
    "first-steps.md": {
        "rudel train$": "--epochs 3",
        "rudel train --run runs/stopped": "--epochs 12",
        "rudel train digits --set filters=8 --set": "--epochs 1",
        "rudel train quickdraw$": "--steps 256",
        "rudel train quickdraw --set net=cnn": "--steps 5 --set drawings=100",
        'rudel train quickdraw --set "classes': "--steps 100 --set drawings=1000",
    },
    "lab.md": {"lab stats": "--prefix raspi", "lab down": "--prefix raspi"},
    "laptop-and-gpu-box.md": {
        "rudel plan digits": "--set filters=4",
        "rudel train digits --on laptop,gpubox": "--set filters=4 --epochs 2",
        "rudel hosts run gpubox -- .rudel/env/bin/rudel train": "--set filters=4 --epochs 1",
    },
    "mesh.md": {
        "rudel train digits --devices 4": "--batch-size 240 --epochs 1",
        "rudel train digits --devices 2": "--batch-size 240 --epochs 2",
        "rudel train digits --mesh": "--batch-size 240",
        "rudel train digits --strategy mesh": "--steps 4",
    },
    "plan.md": {
        "rudel plan quickdraw": "--set drawings=500",
        "rudel train quickdraw": "--steps 512 --set drawings=500",
    },
    "play.md": {
        "rudel train digits": "--epochs 3",
        "rudel play": "--port 0 --no-browser",
        "python3 -m http.server": "0",
    },
    "export.md": {"rudel train digits": "--epochs 3"},
    "runs.md": {"rudel train digits --run runs/killed": "--epochs 12"},
    "tune.md": {
        "rudel tune digits --set lr=log:1e-4..1e-2 --set filters=4,8,16 --trials 6": "--trials 2 --epochs 1",
        "rudel tune digits --set lr=log:1e-4..1e-2 --set filters=4,8,16 --trials 8": "--trials 3 --epochs 1",
    },
    "cluster.md": {
        "rudel plan quickdraw": "--set drawings=500",
        "rudel train quickdraw": "--steps 256 --set drawings=500",
    },
    "signs.md": {
        "rudel train images --data sign-records$": "--epochs 2 --set side=32 --batch-size 28",
        "rudel train images --data few": "--epochs 1 --set side=32 --batch-size 11",
    },
    "word.md": {"rudel train keywords": "--set net=tiny --epochs 2 --batch-size 22"},
    "movement.md": {"rudel train motion": "--epochs 3 --batch-size 12"},
    "table.md": {"rudel train table": "--batch-size 71"},
    "sine.md": {
        "rudel train sine --set net=small": "--batch-size 20 --epochs 100",
        "rudel train sine$": "--batch-size 20 --epochs 300",
    },
    "micro.md": {"rudel train sine": "--batch-size 20 --epochs 30"},
    "strategies.md": {"rudel train digits": "--set filters=4 --epochs 1"},
    "watch.md": {"rudel watch": "--port 0 --no-browser"},
    "slurm.md": {"mpirun": "--epochs 1"},
    "recommend.md": {
        "rudel train recommend": "--set users=1000 --set items=1000 --set tastes=4 --set held_out=200 --epochs 1 "
        "--batch-size 500"
    },
}
"""Options that are added to commands, by page; commands are known by how they begin, or, with a `$`, by all of it.

Batch sizes divide the number of training examples: a smaller last batch would be one program more to compile.
"""

WHOLE_BATCHES = "--set validation=0.1987"
"""What is added to trainings of `digits` on one computer, for the same reason: it leaves 1,440 of the 1,797 digits."""

SMALL = "--set filters=4"
"""What is added to those that are not tuned: their steps take a quarter of the time."""

_WITHOUT_TENSORFLOW = {
    "keras.utils.set_random_seed(0)": "import keras.src.utils.module_utils as others; others.tensorflow._available = "
    "False; keras.utils.set_random_seed(0)"
}
"""What lets Keras not find TensorFlow: it would import it to set its seed, too."""

INSTEAD: dict[str, dict[str, str]] = {
    "export.md": {
        "python ask.py": f"{' '.join(f'{name}={value}' for name, value in ENVIRONMENT.items())} python ask.py"
    },
    "numpy.md": _WITHOUT_TENSORFLOW,
    "runs.md": {
        "timeout --signal=KILL 6 rudel train digits --run runs/killed --checkpoint-every 500 || true\n": "set -m\n"
        "rudel train digits --run runs/killed --checkpoint-every 100 &\n"
        "until ls runs/killed/checkpoints/*; do sleep 0.05; done 2> log\nkill -KILL $!\nwait $! || true\n",
    },
    "your-own-model.md": _WITHOUT_TENSORFLOW
    | {
        "validation=0.2": "validation=0.1987",
        "rudel.Examples(x, y), 0.2,": "rudel.Examples(x, y), 0.1987,",
        "rudel.fit(model, x, y, callbacks": "rudel.fit(model, x[:1792], y[:1792], callbacks",
    },
    "first-steps.md": {
        "rudel train --run runs/stopped\n": "set -m\nrudel train --run runs/stopped &\n"
        "until [ -s runs/stopped/metrics.jsonl ]; do sleep 0.05; done\nkill -INT $! || true\nwait $! || true\n",
        "rudel play runs/quickdraw\n": "",
    },
    "signs.md": {"rudel.fit(model, images, epochs=1": "rudel.fit(model, images, batch_size=28, epochs=1"},
    "serve.md": {
        "rudel serve runs/digits\n": "rudel serve runs/digits --port 0 > address 2> log & echo $! > number\n"
        "until [ -s address ]; do sleep 0.1; done\n",
        '"http://127.0.0.1:8501"': 'open("address").read().strip()',
        "http://127.0.0.1:8501": "$(cat address)",
        'print(answer["outputs"]': 'import os; os.kill(int(open("number").read()), 15)\nprint(answer["outputs"]',
    },
}
"""What is run in the place of other text, by page: commands that a person ends by Ctrl-C, say."""

MADE = {"results.md"}
"""Pages that a program writes; a test of their own runs their commands."""

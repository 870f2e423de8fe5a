"""Renders CLEVR-like scenes: an analytic ray caster, vectorised over scenes and pixels in compiled functions.

`supersample`**2 rays per pixel meet spheres, upright cylinders and cubes in closed form, under a key light that casts
shadows, a fill light and ambient light. Rubber is matte with a faint, wide highlight. Metal has a sharp highlight and
mirrors a simple studio. The same program of the same shape renders every chunk, so an image depends on its scene, the
resolution and the machine alone. Different kinds of machine (CPU, GPU) agree up to rounding.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from winobench.clevr import scenes as clevr_scenes
from winobench.clevr.scenes import Scenes

# sRGB bytes of `clevr_scenes.COLORS`; CLEVR's, a little more saturated so that they stay apart in few pixels.
PALETTE = (
    (87, 87, 87),
    (190, 30, 30),
    (35, 70, 220),
    (25, 120, 20),
    (120, 66, 20),
    (140, 40, 200),
    (35, 205, 205),
    (255, 228, 40),
)
_GROUND = (0.47, 0.465, 0.455)  # linear reflectance
_GAMMA = 2.2
_KEY_LIGHT = (-0.42, -0.50, 0.76)
_FILL_LIGHT = (0.75, -0.45, 0.35)
# The ground's values of the properties of objects.
_OF_GROUND = {
    **{"cos": 1.0, "sin": 0.0, "cube": False, "sphere": False, "metal": False},
    **{"x": 0.0, "y": 0.0, "z": 0.0, "radius": 1.0},
}
_RAYS_PER_CHUNK = 1 << 20
_FAR = 1e9


def render(scenes: Scenes, size: int = 64, *, supersample: int = 2) -> np.ndarray:
    """Renders scenes of any number: uint8 [num_scenes, size, size, 3], sRGB."""
    if size < 1 or supersample < 1:
        raise ValueError(f"size and supersample must be positive, got {size} and {supersample}")
    chunk = chunk_size(size, supersample)
    # JAX dispatches ahead. Two chunks in flight keep the device busy without holding every image on it.
    images, pending = [], []
    for first in range(0, len(scenes), chunk):
        part = scenes[np.minimum(np.arange(first, first + chunk), len(scenes) - 1)]
        # Three compiled functions and not one: XLA would fuse them and compute each ray's hit again for everything
        # that depends on it, a hundred times slower on a CPU.
        hit, nearest = first_hit(part, size * supersample)
        pending.append(_to_bytes(_shade(part, hit, nearest, size * supersample), size))
        if len(pending) == 2:
            images.append(np.asarray(pending.pop(0)))
    images.extend(np.asarray(image) for image in pending)
    return np.concatenate([np.zeros((0, size, size, 3), np.uint8), *images])[: len(scenes)]


def chunk_size(size: int, supersample: int = 2) -> int:
    """Scenes that one call of the compiled function renders. Multiples of it waste nothing."""
    return max(1, _RAYS_PER_CHUNK // (size * supersample) ** 2)


def _camera_rays(side: int):
    """The camera's place (3 floats) and unit directions (3 arrays [side * side]), row by row from the top left."""
    sine, cosine = math.sin(clevr_scenes.CAMERA_ELEVATION), math.cos(clevr_scenes.CAMERA_ELEVATION)
    grid = ((np.arange(side) + 0.5) / side * 2.0 - 1.0) * clevr_scenes.HALF_VIEW_TANGENT
    up, right = np.meshgrid(-grid, grid, indexing="ij")
    rays = np.stack([right, cosine + up * sine, -sine + up * cosine], axis=-1).reshape(-1, 3)
    rays /= np.linalg.norm(rays, axis=-1, keepdims=True)
    return clevr_scenes.camera_position(), tuple(rays.T.astype(np.float32))


def _objects(scenes: Scenes):
    """Per object: its centre, rotation, radius and looks, and whether it exists, as arrays [num_scenes, 1]."""
    radius, half = clevr_scenes.radii(scenes), clevr_scenes.half_heights(scenes)
    for i in range(scenes.shape.shape[1]):
        column = slice(i, i + 1)
        yield {
            "x": scenes.position[:, i, 0:1],
            "y": scenes.position[:, i, 1:2],
            "z": half[:, column],
            "cos": jnp.cos(scenes.rotation[:, column]),
            "sin": jnp.sin(scenes.rotation[:, column]),
            "radius": radius[:, column],
            "cube": scenes.shape[:, column] == 0,
            "sphere": scenes.shape[:, column] == 1,
            "metal": scenes.material[:, column] == 1,
            "color": scenes.color[:, column],
            "present": (i < scenes.num_objects)[:, None],
        }


def _interval(o, x, y, z, dx, dy, dz):
    """Where a ray from (x, y, z), in the object's own axes, enters and leaves it: (enter, leave, whether it does).

    Every shape is an intersection of simple solids: the cube of three slabs, the cylinder of an endless cylinder and
    a slab, the sphere of itself alone. Cylinder and sphere share their quadratic.
    """
    round_z = jnp.where(o["sphere"], 1.0, 0.0)
    a = dx * dx + dy * dy + round_z * dz * dz
    b = x * dx + y * dy + round_z * z * dz
    c = x * x + y * y + round_z * z * z - o["radius"] ** 2
    discriminant = b * b - a * c
    root = jnp.sqrt(jnp.maximum(discriminant, 0.0))
    side = clevr_scenes.CUBE_HALF_SIDE * o["radius"]
    inv_a, inv_x, inv_y, inv_z = 1.0 / a, 1.0 / dx, 1.0 / dy, 1.0 / dz
    middle_x, middle_y, middle_z = -x * inv_x, -y * inv_y, -z * inv_z
    half_x, half_y = side * jnp.abs(inv_x), side * jnp.abs(inv_y)
    height = jnp.where(o["cube"], side, jnp.where(o["sphere"], 4.0, 1.0) * o["radius"])
    half_z = height * jnp.abs(inv_z)
    enter = jnp.where(o["cube"], jnp.maximum(middle_x - half_x, middle_y - half_y), -(b + root) * inv_a)
    leave = jnp.where(o["cube"], jnp.minimum(middle_x + half_x, middle_y + half_y), (root - b) * inv_a)
    enter = jnp.maximum(enter, middle_z - half_z)
    leave = jnp.minimum(leave, middle_z + half_z)
    return enter, leave, (enter < leave) & (o["cube"] | (discriminant > 0.0)) & o["present"]


def _own_axes(o, x, y):
    return o["cos"] * x + o["sin"] * y, o["cos"] * y - o["sin"] * x


@functools.partial(jax.jit, static_argnames="side")
def first_hit(scenes, side):
    """Index of the first object on each ray (-1: the ground) and the distance to it, [num_scenes, rays]."""
    eye, direction = _camera_rays(side)
    dx, dy, dz = (d[None, :] for d in direction)
    nearest = jnp.full((scenes.shape.shape[0], dx.shape[1]), _FAR, jnp.float32)
    hit = jnp.full(nearest.shape, -1, jnp.int32)
    for i, o in enumerate(_objects(scenes)):
        own_dx, own_dy = _own_axes(o, dx, dy)
        x, y = _own_axes(o, eye[0] - o["x"], eye[1] - o["y"])
        enter, _, meets = _interval(o, x, y, eye[2] - o["z"], _nonzero(own_dx), _nonzero(own_dy), dz)
        enter = _materialise(jnp.where(meets & (enter > 0.0), enter, _FAR))
        hit = jnp.where(enter < nearest, i, hit)
        nearest = jnp.minimum(enter, nearest)
    return hit, nearest


def _materialise(values):
    """Makes XLA store values that several others need, where it would rather compute them again in each."""
    return jax.lax.optimization_barrier(values)


def _nonzero(d):
    return jnp.where(jnp.abs(d) < 1e-6, 1e-6, d)


def _unit(vector):
    length = math.sqrt(sum(v * v for v in vector))
    return tuple(v / length for v in vector)


@functools.partial(jax.jit, static_argnames="side")
def _shade(scenes, hit, nearest, side):
    """Linear RGB of each ray, three arrays [num_scenes, rays]."""
    eye, direction = _camera_rays(side)
    dx, dy, dz = (d[None, :] for d in direction)
    ground = hit < 0
    distance = jnp.where(ground, -eye[2] / dz, nearest)
    x, y, z = eye[0] + distance * dx, eye[1] + distance * dy, eye[2] + distance * dz

    palette = (np.asarray(PALETTE, np.float32) / 255.0) ** _GAMMA
    objects = list(_objects(scenes))
    met = {name: _met(objects, hit, name, default) for name, default in _OF_GROUND.items()}
    nx, ny, nz = normal = _materialise(_normal(met, ground, x, y, z))
    key, fill = _unit(_KEY_LIGHT), _unit(_FILL_LIGHT)
    lit, contact = _shadows(objects, (x, y, z), normal, key)
    key_light = jnp.where(lit, jnp.maximum(0.0, nx * key[0] + ny * key[1] + nz * key[2]), 0.0)
    fill_light = jnp.maximum(0.0, nx * fill[0] + ny * fill[1] + nz * fill[2])
    light = 0.26 + 0.16 * nz + 0.85 * key_light + 0.16 * fill_light

    falloff = 1.0 / (1.0 + 0.006 * (x * x + (y + 1.0) ** 2))
    ground_light = light * falloff * contact

    studio, wide_glare, sharp_glare = _mirrored((dx, dy, dz), normal, key)
    lit_glare = jnp.where(lit, 1.0, 0.15)
    diffuse = jnp.where(met["metal"], 0.34 * light + 0.85 * studio, light)
    highlight = lit_glare * jnp.where(met["metal"], 1.1 * sharp_glare, 0.05 * wide_glare)
    diffuse, highlight, ground_light = _materialise((diffuse, highlight, ground_light))
    channels = []
    for channel in range(3):
        reflectance = jnp.zeros(hit.shape, jnp.float32)
        for i, o in enumerate(objects):
            reflectance = jnp.where(hit == i, jnp.take(palette[:, channel], o["color"]), reflectance)
        channels.append(jnp.where(ground, _GROUND[channel] * ground_light, reflectance * diffuse + highlight))
    return tuple(channels)


def _met(objects, hit, name, default):
    """A property of the object that each ray meets, selected before anything is computed from it."""
    value = jnp.full(hit.shape, default)
    for i, o in enumerate(objects):
        value = jnp.where(hit == i, o[name], value)
    return value


def _normal(met, ground, x, y, z):
    """The surface's normal where each ray meets it."""
    cosine, sine, cube, sphere = met["cos"], met["sin"], met["cube"], met["sphere"]
    px, py, pz = x - met["x"], y - met["y"], z - met["z"]
    own_x, own_y = cosine * px + sine * py, cosine * py - sine * px
    inverse_radius = 1.0 / met["radius"]
    # A cube's point lies on the face of its largest coordinate, a cylinder's on the top where it is higher than wide.
    wide = jnp.sqrt(px * px + py * py)
    cylinder_top = pz > wide
    size_x, size_y = jnp.abs(own_x), jnp.abs(own_y)
    cube_top = pz > jnp.maximum(size_x, size_y)
    face_x = size_x > size_y
    side_x = jnp.where(face_x, jnp.sign(own_x), 0.0)
    side_y = jnp.where(face_x, 0.0, jnp.sign(own_y))
    top = ground | jnp.where(cube, cube_top, ~sphere & cylinder_top)
    nx = jnp.where(top, 0.0, jnp.where(cube, cosine * side_x - sine * side_y, px * inverse_radius))
    ny = jnp.where(top, 0.0, jnp.where(cube, sine * side_x + cosine * side_y, py * inverse_radius))
    nz = jnp.where(top, 1.0, jnp.where(sphere, pz * inverse_radius, 0.0))
    return nx, ny, nz


def _shadows(objects, point, normal, key):
    """Whether the key light reaches each point, and how much of the light the objects near it leave to the ground."""
    (x, y, z), (nx, ny, nz) = point, normal
    lit = jnp.ones(x.shape, bool)
    contact = jnp.ones(x.shape, jnp.float32)
    # Shadow rays start a little off the surface, so that no object shades itself by rounding.
    sx, sy, sz = x + 1e-3 * nx, y + 1e-3 * ny, z + 1e-3 * nz
    for o in objects:
        own_kx, own_ky = _own_axes(o, key[0], key[1])
        own_sx, own_sy = _own_axes(o, sx - o["x"], sy - o["y"])
        _, leave, meets = _interval(o, own_sx, own_sy, sz - o["z"], _nonzero(own_kx), _nonzero(own_ky), key[2])
        lit &= _materialise(~(meets & (leave > 1e-3)))
        away = ((x - o["x"]) ** 2 + (y - o["y"]) ** 2) / (o["radius"] * 1.6) ** 2
        contact *= 1.0 - jnp.where(o["present"], 0.45, 0.0) * jnp.maximum(0.0, 1.0 - away) ** 2
    return lit, contact


def _mirrored(direction, normal, key):
    """The part of the studio in a mirror, and the key light's glare, wide and sharp."""
    (dx, dy, dz), (nx, ny, nz) = direction, normal
    # The mirrored direction, for the highlight and for what metal shows of the studio: a bright ceiling, a
    # window, a standing lamp on the left, the ground below, and the key light's own glare.
    facing = dx * nx + dy * ny + dz * nz
    mx, my, mz = dx - 2.0 * facing * nx, dy - 2.0 * facing * ny, dz - 2.0 * facing * nz
    glare = jnp.maximum(0.0, mx * key[0] + my * key[1] + mz * key[2])
    wide_glare = glare**8
    sharp_glare = wide_glare**4
    window = 1.3 * jnp.maximum(0.0, 1.0 - 5.0 * jnp.abs(mz - 0.35)) * jnp.clip(1.2 - 3.0 * mx, 0.0, 1.0)
    lamp = 1.5 * jnp.maximum(0.0, 1.0 - 6.0 * jnp.abs(mx + 0.72))
    studio = jnp.where(mz > 0.0, 0.12 + 1.2 * mz * mz + window, 0.12 + 0.5 * (1.0 + mz) ** 2) + lamp
    return studio, wide_glare, sharp_glare


@functools.partial(jax.jit, static_argnames="size")
def _to_bytes(channels, size):
    """Averages the rays of each pixel and encodes them, uint8 [num_scenes, size, size, 3]."""
    color = jnp.clip(jnp.stack(channels, axis=-1), 0.0, 1.0)
    rays = math.isqrt(color.shape[1]) // size
    color = color.reshape(-1, size, rays, size, rays, 3).mean(axis=(2, 4))
    return jnp.round(255.0 * color ** (1.0 / _GAMMA)).astype(jnp.uint8)

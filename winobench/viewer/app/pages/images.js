// Generated images with their prompts, verdicts and judgements.

import { count, html, link, Loaded, number, useData, useEffect, useMemo, useQuery, useRef, useState, useTitle, words } from '../base.js'
import { fewMark, numberText } from '../numbers.js'
import { Search, Select, pageOf } from '../parts.js'
import * as source from '../source.js'
import { Pages, SaveTable, Table } from '../tables.js'

const SIZE = 12
const FILTERS = ['text', 'category', 'model', 'seed', 'verdict']
const VERDICTS = [['', 'all'], ['right', 'right'], ['wrong', 'wrong'], ['none', 'not verified']]

export default function Images({ slug, parameters }) {
  const state = useData(() => source.drawn(slug), [slug])
  const title = `Generated images of ${state.value?.models.map(labelOf).join(', ') ?? slug}`
  useTitle(title)
  return html`<h1>${title}</h1>
    <${Loaded} state=${state} what="the images">${drawn => html`<${Gallery} drawn=${drawn} slug=${slug} parameters=${parameters} />`}<//>`
}

const verdictOf = ({ verdict }) => (verdict ? (verdict.correct ? 'right' : 'wrong') : 'none')
const labelOf = model => model.label ?? model.name ?? model

function Gallery({ drawn, slug, parameters }) {
  const [values, write] = useQuery(['images', slug], parameters)
  const filters = Object.fromEntries(FILTERS.map(name => [name, values[name] ?? '']))
  const page = pageOf(values)
  const change = some => write({ page: '', open: '', ...some })
  const prompts = useMemo(() => byPrompt(drawn.images), [drawn])
  const models = drawn.models.map(labelOf)
  const categories = [...new Set(drawn.images.map(({ category }) => category))].filter(Boolean)
  const has = Object.fromEntries(['verdict'].map(name => [name, drawn.images.some(image => image[name])]))
  const shown = useMemo(() => {
    const asked = filters.text.toLowerCase().split(/\s+/).filter(Boolean)
    return prompts.map(prompt => ({ ...prompt, images: prompt.images.filter(image => passes(image, filters)) }))
      .filter(({ text, category, images }) => images.length && (!filters.category || category === filters.category) && asked.every(word => text.toLowerCase().includes(word)))
  }, [prompts, ...Object.values(filters)])
  const images = shown.flatMap(prompt => prompt.images)
  const open = images.findIndex(({ file }) => file === values.open)
  const show = place => write({ open: images[place]?.file })
  const pick = (name, label, choices) => html`<${Select} label=${label} value=${filters[name]} choices=${choices} onChange=${value => change({ [name]: value })} />`
  const same = values => [['', 'all'], ...values.map(value => [String(value), String(value)])]
  return html`
    ${drawn.status && drawn.status !== 'finished' && html`<p class="problem">The run has the status “${drawn.status}”: these are the images that it has.</p>`}
    <form class="filters" role="search" onSubmit=${event => event.preventDefault()}>
      <${Search} label="Words in prompts" value=${filters.text} onSearch=${text => change({ text })} />
      ${categories.length > 1 && pick('category', 'Category', [['', 'all'], ...categories.map(name => [name, words(name)])])}
      ${models.length > 1 && pick('model', 'Model', same(models))}
      ${drawn.seeds.length > 1 && pick('seed', 'Seed', same(drawn.seeds))}
      ${has.verdict && pick('verdict', 'Verdict', VERDICTS)}
    </form>
    <p class="count" role="status">${count(images.length)} images of ${count(shown.length)} prompts.</p>
    ${drawn.missing?.length > 0 && html`<details><summary>Missing images: ${count(drawn.missing.length)}</summary><ul>${drawn.missing.map(({ model, seed, number, kind, reason, prompt }) => html`<li key=${`${model} ${seed} ${number}`}>${model}, seed ${seed}, “${prompt}”: ${kind} (${reason})</li>`)}</ul></details>`}
    <div class="gallery">${shown.slice(page * SIZE, (page + 1) * SIZE).map(prompt => html`<section class="prompt" key=${prompt.number}>
      <div><h2>${prompt.text}</h2>
      <p class="about"><span>number ${prompt.number}</span>${prompt.category && html`<a href=${link(['images', slug], { category: prompt.category })}>${words(prompt.category)}</a>`}</p>${prompt.shown && html`<p class="about">Given to the models: ${prompt.shown}</p>`}</div>
      <div class="seeds">${seedsOf(prompt).map(([seed, some]) => html`<div class="drawn" key=${seed}>${some.map(image => html`<${Drawn} key=${image.file} image=${image} slug=${slug} onOpen=${() => show(images.indexOf(image))} />`)}</div>`)}</div>
    </section>`)}</div>
    ${!shown.length && html`<p class="empty">No image passes the filters. <a href=${link(['images', slug])}>Show all images.</a></p>`}
    <${Pages} total=${shown.length} size=${SIZE} page=${page} onPage=${next => change({ page: next ? next + 1 : '' })} />
    ${images.length > 0 && html`<${SaveTable} caption="Generated images" name="images" columns=${columns(people(drawn))} rows=${images} />`}
    ${(drawn.rubrics ?? []).map(one => html`<${Rubric} ...${one} />`)}
    <${Large} image=${images[open]} place=${open} total=${images.length} slug=${slug} onShow=${show} />`
}

const passes = (image, { model, seed, verdict }) =>
  (!model || image.model === model) && (!seed || String(image.seed) === seed) && (!verdict || verdictOf(image) === verdict)

function byPrompt(images) {
  const found = new Map()
  for (const image of images) {
    if (!found.has(image.number)) found.set(image.number, { number: image.number, text: image.prompt, shown: image.shown, category: image.category, images: [] })
    found.get(image.number).images.push(image)
  }
  return [...found.values()].sort((one, other) => one.number - other.number)
}

function seedsOf({ images }) {
  const found = new Map()
  for (const image of images) found.set(image.seed, [...(found.get(image.seed) ?? []), image])
  return [...found].sort(([one], [other]) => one - other)
}

const people = ({ images }) => [...new Set(images.flatMap(({ judgements }) => Object.keys(judgements ?? {})))].sort()

const sign = image => ({ right: html`<span class="outcome right">✓ right</span>`, wrong: html`<span class="outcome wrong">✗ wrong</span>`, none: null })[verdictOf(image)]

function Drawn({ image, slug, onOpen }) {
  const [isLost, setLost] = useState(false)
  return html`<figure>
    ${isLost ? html`<p class="picture none">The image is not there any more.</p>` : html`<button type="button" onClick=${onOpen} aria-label=${`Show large: ${image.model}, seed ${image.seed}, ${image.prompt}`}><img loading="lazy" decoding="async" src=${source.picture(slug, image.thumbnail ?? image.file)} alt=${`${image.model}, seed ${image.seed}`} onError=${() => setLost(true)} /></button>`}
    <figcaption>${image.model}, seed ${image.seed} ${sign(image)}${Object.entries(image.judgements ?? {}).map(([person, label]) => html`<br />${person}: ${words(String(label))}`)}</figcaption>
  </figure>`
}

// One image in a dialog. Arrows go to its neighbours.
function Large({ image, place, total, slug, onShow }) {
  const dialog = useRef()
  const isOpen = Boolean(image)
  useEffect(() => {
    if (isOpen && !dialog.current.open) dialog.current.showModal()
    if (!isOpen && dialog.current.open) dialog.current.close()
  }, [isOpen])
  const pressed = event => {
    const by = { ArrowLeft: -1, ArrowRight: 1, k: -1, j: 1 }[event.key]
    if (!by) return
    event.preventDefault()
    if (place + by >= 0 && place + by < total) onShow(place + by)
  }
  return html`<dialog class="viewer" ref=${dialog} aria-label="Image" onKeyDown=${pressed} onClose=${() => isOpen && onShow(-1)}>${image && html`
    <img src=${source.picture(slug, image.file)} alt=${image.prompt} />
    <p><strong>${image.prompt}</strong></p>${image.shown && html`<p class="about">Given to the model: ${image.shown}</p>`}
    <p class="about"><span>${image.model}</span><span>seed ${image.seed}</span><span>number ${image.number}</span>${image.category && html`<span>${words(image.category)}</span>`}${sign(image)}</p>
    ${image.verdict && html`<p>${image.verdict.judge} found: ${image.verdict.found?.length ? '' : 'nothing.'}</p>${image.verdict.found?.length > 0 && html`<ul>${image.verdict.found.map(one => html`<li>${foundText(one)}</li>`)}</ul>`}`}
    ${Object.entries(image.judgements ?? {}).map(([person, label]) => html`<p>${person}: ${words(String(label))}</p>`)}
    <p class="steps">
      <button type="button" disabled=${place <= 0} onClick=${() => onShow(place - 1)}>Previous<kbd>←</kbd></button>
      <button type="button" disabled=${place >= total - 1} onClick=${() => onShow(place + 1)}>Next<kbd>→</kbd></button>
      <span>${count(place + 1)} of ${count(total)}</span>
      <a href=${source.picture(slug, image.file)} download>Save</a>
      <button type="button" onClick=${() => onShow(-1)}>Close<kbd>Esc</kbd></button></p>`}</dialog>`
}

// What a judge found, as words: the texts of its values, then its numbers.
function foundText(one) {
  if (!one || typeof one !== 'object') return String(one)
  const entries = Object.entries(one)
  const texts = entries.filter(([, value]) => typeof value === 'string').map(([, value]) => value)
  const others = entries.filter(([, value]) => typeof value !== 'string').map(([name, value]) => `${words(name)} ${typeof value === 'number' ? number(value, 2) : JSON.stringify(value)}`)
  return [texts.join(' '), ...others].filter(Boolean).join(', ')
}

// What an automatic judge says by a benchmark's rubric, with the texts that it has read.
function Rubric({ rubric, judge, wordings, missing, no_image: noImage, rows }) {
  return html`<h2>${words(rubric)}, judged by ${judge}</h2>${wordings.map(wording => html`<p class="about">The judge reads: “${wording}”</p>`)}${wordings.some(wording => wording.includes('{')) && html`<p class="about">Braces stand for the prompt, a part of it, or a question about it.</p>`}${missing > 0 && html`<p class="about">${missing} ${missing === 1 ? 'image lacks' : 'images lack'} an answer and count nowhere.</p>`}${(noImage ?? []).map(sentence => html`<p class="about">Missing images: ${sentence}.</p>`)}<${Table} caption=${`Scores by ${rubric} and ${judge}, in percent with 95% intervals`} name=${`rubric-${rubric}`} rows=${rows} rowKey=${({ model, metric, group }) => `${model} ${metric} ${group}`} columns=${[
    ...['model', 'metric', 'group'].map(key => ({ key, label: key, value: row => words(row[key]) })),
    ...['value', 'low', 'high'].map(key => ({ key, label: key, isNumber: true, value: row => (row[key] === null ? null : row.is_count ? row[key] : 100 * row[key]), cell: row => (row[key] === null ? '' : numberText(row[key], !row.is_count) + (key === 'high' ? fewMark(row) : '')) })),
    { key: 'n', label: 'numbers', isNumber: true },
  ]} />`
}

const columns = names => [
  ...['file', 'prompt', 'category', 'model'].map(key => ({ key, label: key })),
  ...['seed', 'number'].map(key => ({ key, label: key, isNumber: true })),
  { key: 'verdict', label: 'verdict', value: verdictOf },
  { key: 'found', label: 'found', value: ({ verdict }) => (verdict?.found ?? []).map(foundText).join('; ') },
  ...names.map(person => ({ key: `judged by ${person}`, label: person, value: ({ judgements }) => judgements?.[person] ?? null })),
]
